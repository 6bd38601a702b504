# A repository, a branch, a merge and a clone.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_AUTHOR_DATE='2026-01-01T00:00:00Z'
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
git init -q -b main one && cd one
echo first > a && git add a && git commit -qm first
git switch -qc side && echo side > b && git add b && git commit -qm side
git switch -q main && echo more >> a && git commit -qam more
git merge -q --no-edit side
cd .. && git clone -q one two && cd two
git log --format='%h %s' --graph
git gc -q && git fsck --no-progress && ls
git archive HEAD | tar -t
