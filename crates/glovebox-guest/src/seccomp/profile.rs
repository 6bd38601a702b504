//! The same tables as a profile for container engines, which put it on the first process of a container.
//!
//! It is put on before the guest begins, and holds whatever else is started in the container. What the guest needs to set up a
//! sandbox is among the calls that commands may make, so both have one list. Calls that Docker's own profile refuses are refused
//! here too: who gives a profile takes the place of that one.
//!
//! Where a command is refused something by this and by the filter inside, the kernel answers with the error of the filter inside.

use serde_json::{Value, json};

use super::{Check, Listed, table};

/// Calls that the tables allow and Docker's own profile, as it was in 2025, does not. They tell of the host's memory, or take descriptors from others.
const NOT_IN_CONTAINERS: [&str; 3] = ["get_mempolicy", "pidfd_getfd", "set_mempolicy_home_node"];

/// The one personality that Docker's own profile does not allow: no randomised addresses.
const NOT_A_PERSONALITY: u32 = libc::ADDR_NO_RANDOMIZE as u32;

/// The profile in the form that Docker and Podman read, JSON. Calls that it does not name are refused with EPERM; those through a foreign
/// table (32-bit, x32) end the process.
pub fn container_profile() -> String {
    let allowed = table::ALLOWED.iter().chain(table::NEWER).map(table::Call::name);
    let allowed: Vec<_> = allowed.filter(|name| !NOT_IN_CONTAINERS.contains(name)).collect();
    let mut rules = vec![
        json!({"names": allowed, "action": "SCMP_ACT_ALLOW"}),
        json!({"names": [table::ABSENT.name()], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS}),
    ];
    rules.extend(table::CHECKS.iter().flat_map(of_check));
    json!({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": libc::EPERM, "syscalls": rules}).to_string()
}

/// The rules of a call that is decided by its arguments: each allows some values.
fn of_check(check: &Check) -> Vec<Value> {
    let rule = |args: Vec<Value>| json!({"names": [check.call.name()], "action": "SCMP_ACT_ALLOW", "args": args});
    let allowed = match check.listed {
        Listed::Allowed => check.values.iter().map(|value| (check.mask, *value)).collect(),
        Listed::Refused => all_but(check.values, (0, 0), 31),
    };
    let allowed =
        allowed.into_iter().filter(|(_, value)| check.call.name() != "personality" || *value != NOT_A_PERSONALITY);
    let mut rules: Vec<_> = allowed.map(|(mask, value)| rule(vec![equal(check.argument, mask, value)])).collect();
    if let Some((value, argument, required)) = check.refined {
        rules.push(rule(vec![equal(check.argument, u32::MAX, value), equal(argument, u32::MAX, required)]));
    }
    rules
}

/// Engines compare all 64 bits of an argument, and the kernel looks at the lower half of these: a comparison without a mask could be
/// got around with a bit in the upper half.
fn equal(argument: u32, mask: u32, value: u32) -> Value {
    json!({"index": argument, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": value})
}

/// All values but these, as masks and what is left under them, since engines know no comparison that is masked and negative. Every
/// value begins with the bits `known` from the highest down to the one above `bit`.
fn all_but(values: &[u32], (mask, known): (u32, u32), bit: u32) -> Vec<(u32, u32)> {
    if values.is_empty() {
        return vec![(mask, known)];
    }
    let (one, mut allowed) = (1 << bit, Vec::new());
    for next in [0, one] {
        let with_it: Vec<u32> = values.iter().copied().filter(|value| value & one == next).collect();
        match bit {
            0 if !with_it.is_empty() => {}
            0 => allowed.push((mask | one, known | next)),
            _ => allowed.extend(all_but(&with_it, (mask | one, known | next), bit - 1)),
        }
    }
    allowed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::tests::{EPERM, call},
        *,
    };
    use crate::seccomp::ALLOW;

    fn rules() -> Vec<Value> {
        let profile: Value = serde_json::from_str(&container_profile()).unwrap();
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        profile["syscalls"].as_array().unwrap().clone()
    }

    /// Whether the profile lets a call pass, as an engine reads it.
    fn passes(rules: &[Value], name: &str, arguments: [u32; 6]) -> bool {
        let number = |value: &Value| value.as_u64().unwrap();
        let fits = |arg: &Value| {
            assert_eq!(arg["op"], "SCMP_CMP_MASKED_EQ");
            u64::from(arguments[number(&arg["index"]) as usize]) & number(&arg["value"]) == number(&arg["valueTwo"])
        };
        let of_call = rules.iter().filter(|rule| rule["names"].as_array().unwrap().iter().any(|known| known == name));
        let mut of_call = of_call.filter(|rule| rule["action"] == "SCMP_ACT_ALLOW");
        of_call.any(|rule| rule["args"].as_array().is_none_or(|args| args.iter().all(fits)))
    }

    fn all() -> Vec<table::Call> {
        let checked = table::CHECKS.iter().map(|check| check.call);
        let named = [table::ALLOWED, table::NEWER, table::REFUSED].concat();
        named.into_iter().chain(checked).chain([table::ABSENT]).collect()
    }

    #[test]
    fn the_profile_allows_what_the_filter_allows_but_for_what_docker_refuses() {
        let rules = rules();
        for known in all().iter().filter(|known| table::CHECKS.iter().all(|check| check.call != **known)) {
            let expected = call(known.number, [0; 6]) == ALLOW && !NOT_IN_CONTAINERS.contains(&known.name());
            assert_eq!(passes(&rules, known.name(), [0; 6]), expected, "{known:?}");
        }
        assert!(NOT_IN_CONTAINERS.iter().all(|name| table::ALLOWED.iter().any(|known| known.name() == *name)));
    }

    #[test]
    fn keys_namespaces_and_mounts_are_refused_in_the_whole_container() {
        let rules = rules();
        for name in
            ["keyctl", "add_key", "request_key", "unshare", "setns", "mount", "bpf", "open_by_handle_at", "clone3"]
        {
            assert!(!passes(&rules, name, [0; 6]), "{name}");
        }
        let absent = rules.iter().find(|rule| rule["errnoRet"] == libc::ENOSYS).unwrap();
        assert_eq!(absent["names"], json!(["clone3"]));
    }

    #[test]
    fn all_values_but_some_are_named_by_their_bits() {
        let allowed = all_but(&[0x5412, 0x541c], (0, 0), 31);
        let fits = |value: u32| allowed.iter().filter(|(mask, left)| value & mask == *left).count();
        for value in (0..0x1_0000).chain([u32::MAX, 1 << 31, 0x8000_5412]) {
            assert_eq!(fits(value), usize::from(![0x5412, 0x541c].contains(&value)), "{value:x}");
        }
    }

    proptest! {
        #[test]
        fn arguments_are_judged_as_by_the_filter(which in 0..table::CHECKS.len(), at: prop::sample::Index, mut arguments: [u32; 6], flip: bool) {
            let check = &table::CHECKS[which];
            // Values that matter are rare among all numbers.
            let known = [check.values, &[libc::AF_NETLINK as u32, libc::CLONE_NEWUSER as u32]].concat();
            if flip {
                arguments[check.argument as usize] = known[at.index(known.len())];
                arguments[2] &= 1;
            }
            let is_docker_tighter = check.call.name() == "personality" && arguments[0] == NOT_A_PERSONALITY;
            let filter = call(check.call.number, arguments);
            prop_assert!(filter == ALLOW || filter == EPERM);
            prop_assert_eq!(passes(&rules(), check.call.name(), arguments), filter == ALLOW && !is_docker_tighter);
        }
    }
}
