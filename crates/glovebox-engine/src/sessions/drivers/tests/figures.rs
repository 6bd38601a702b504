//! Figures and tables, with matplotlib and pandas in an environment of their own below `target`.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::Session;

/// Python with the packages, installed by whoever comes first.
fn python_with_packages() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let python = target.join("session-packages/bin/python");
    let lock = File::create(target.join("session-packages.lock")).expect("target is there");
    lock.lock().expect("it can be waited for");
    let there = |python: &Path| {
        Command::new(python).args(["-c", "import matplotlib, pandas"]).status().is_ok_and(|s| s.success())
    };
    if !there(&python) {
        let run = |program: &Path, args: &[&str]| {
            let status = Command::new(program).args(args).status().expect("it can be started");
            assert!(
                status.success(),
                "{program:?} {args:?} failed; it needs python3-venv and packages from the network"
            );
        };
        let system = Path::new("/usr/bin/python3");
        run(system, &["-m", "venv", target.join("session-packages").to_str().expect("text")]);
        run(&python, &["-m", "pip", "install", "--quiet", "matplotlib", "pandas"]);
    }
    python
}

fn session() -> Session {
    Session::start_in("python", Path::new("/"), Some(&python_with_packages()))
}

fn chart(seen: &super::Seen) -> Value {
    serde_json::from_slice(seen.only("application/vnd.glovebox.chart+json")).expect("it is JSON")
}

#[test]
fn a_figure_is_shown_without_a_call_as_picture_and_as_data() {
    let mut python = session();
    let code = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, float('nan')], label='a')\nplt.plot([1, 2], [0, 1]); plt.title('T'); plt.xlabel('X'); plt.yscale('log');";
    let seen = python.run(code);
    assert_eq!((seen.err.as_str(), seen.code), ("", Some(0)), "{seen:?}");
    assert!(seen.only("image/png").starts_with(b"\x89PNG\r\n\x1a\n"));
    let chart = chart(&seen);
    assert_eq!((&chart["type"], &chart["title"]), (&json!("line"), &json!("T")));
    assert_eq!((&chart["x"]["label"], &chart["y"]["scale"]), (&json!("X"), &json!("log")));
    assert_eq!(
        chart["series"][0],
        json!({"type": "line", "label": "a", "points": [[1.0, 4.0], [2.0, 5.0], [3.0, null]]})
    );
    assert_eq!(chart["series"][1]["label"], "");
    let numbers: Vec<_> = seen.results.iter().map(|shown| (shown.value, shown.displayed)).collect();
    assert_eq!(numbers, [(0, true); 3], "its forms are of one value");
    python.run("plt.get_fignums()").expect_shown(&["[]"]);
}

#[test]
fn figures_come_when_they_are_asked_for_and_once() {
    let mut python = session();
    let seen = python.run("import matplotlib.pyplot as plt\nplt.bar(['a', 'b'], [3, 4])\nplt.show()\nprint('after')");
    seen.expect("after\n", 0).expect_shown(&["<Figure size 640x480 with 1 Axes>"]);
    assert_eq!(chart(&seen)["series"], json!([{"type": "bar", "label": "", "points": [["a", 3], ["b", 4]]}]));
    let seen = python.run("figure, axes = plt.subplots()\naxes.plot([1, 2])\nfigure");
    assert_eq!(seen.results.iter().filter(|shown| shown.mime == "image/png").count(), 1, "{:?}", seen.results);
    assert!(!seen.results[0].displayed, "it is the value");
    python.run("figure.savefig('/dev/null', format='png'); figure").only("image/png");
    let seen = python.run("import matplotlib\nmatplotlib.use('Agg')\nplt.plot([1])\nplt.show()\n1/0");
    seen.expect_exception("ZeroDivisionError", "division by zero").only("image/png");
    let seen = python.run("plt.switch_backend('svg'); plt.plot([1, 2]); plt.title('T');");
    seen.expect("", 0).only("image/png");
    python.run("plt.figure(figsize=(1e5, 1e5)); plt.plot([1]);").expect("", 0);
    let seen = python.run("plt.plot([1])\nplt.gcf().canvas.draw = plt.Figure.savefig = None;");
    assert_eq!(seen.code, Some(0), "{seen:?}");
}

#[test]
fn the_data_of_many_kinds_of_charts_is_told() {
    let mut python = session();
    python.run("import datetime, matplotlib.pyplot as plt");
    let mut data = |code: &str| {
        let seen = python.run(code);
        assert_eq!((seen.err.as_str(), seen.code), ("", Some(0)), "{code}");
        chart(&seen)
    };
    let chart = data("plt.hist([1, 2, 2, 3, 3, 3], bins=2);");
    assert_eq!(chart["type"], "histogram");
    assert_eq!(chart["series"][0]["points"], json!([[1.5, 1.0], [2.5, 5.0]]));
    assert_eq!(chart["series"][0]["edges"], json!([1.0, 2.0, 3.0]));
    let chart = data("plt.scatter([datetime.date(2024, 1, 1), datetime.date(2024, 2, 1)], [1, 2], label='s');");
    assert_eq!(
        chart["series"],
        json!([{"type": "scatter", "label": "s", "points": [["2024-01-01T00:00:00", 1.0], ["2024-02-01T00:00:00", 2.0]]}])
    );
    let chart = data("plt.pie([1, 3], labels=['u', 'v']);");
    assert_eq!(
        chart,
        json!({"type": "pie", "title": "", "series": [{"type": "pie", "label": "", "points": [["u", 0.25], ["v", 0.75]]}]})
    );
    let chart = data("plt.boxplot([[1, 2, 3, 10]]);");
    assert_eq!(
        chart["series"],
        json!([{"type": "box", "label": "1", "min": 1, "q1": 1.75, "median": 2.5, "q3": 4.75, "max": 4.75, "outliers": [10]}])
    );
    let chart = data("plt.barh(['q', 'r'], [1, 2]);");
    assert_eq!(chart["series"][0]["points"], json!([[1, "q"], [2, "r"]]));
    let chart =
        data("figure, (a, b) = plt.subplots(1, 2); a.plot([1, 2]); b.imshow([[1, 2], [3, 4]]); figure.suptitle('S');");
    assert_eq!((&chart["type"], &chart["title"]), (&json!("figure"), &json!("S")));
    assert_eq!(
        chart["charts"][1]["series"],
        json!([{"type": "heatmap", "label": "", "shape": [2, 2], "rows": [[1.0, 2.0], [3.0, 4.0]]}])
    );
    let chart = data("plt.plot(range(100000)); plt.axhline(5);");
    assert_eq!(chart["series"].as_array().map(Vec::len), Some(1), "a rule is no series");
    assert_eq!(chart["series"][0]["points"].as_array().map(Vec::len), Some(5000));
    assert_eq!(chart["series"][0]["points_left_out"], 95000);
}

#[test]
fn a_table_is_shown_as_text_as_html_and_as_data() {
    let mut python = session();
    let seen = python.run("import pandas as pd\ntable = pd.DataFrame({'a': [1, 2], 'b': ['x', None]})\ntable");
    assert_eq!(seen.results.len(), 3, "{seen:?}");
    assert!(String::from_utf8_lossy(seen.only("text/html")).contains("<td>x</td>"));
    let data: Value = serde_json::from_slice(seen.only("application/json")).expect("JSON");
    assert_eq!(data, json!({"columns": ["a", "b"], "index": [0, 1], "data": [[1, "x"], [2, null]], "rows": 2}));
    let seen = python.run("pd.Series(range(5000), name='s')");
    let data: Value = serde_json::from_slice(seen.only("application/json")).expect("JSON");
    assert_eq!((data["data"].as_array().map(Vec::len), &data["rows"]), (Some(1000), &json!(5000)));
    let seen = python.run("table.plot(y='a');");
    assert_eq!(chart(&seen)["series"][0]["label"], "a");
}
