#!/usr/bin/env bash
# What `make try` prints: commands on the files in this folder, each as one can repeat it, and what they answer. The
# argument is the program. A shell script, because the commands are the point, and .try has only what `simulate` imports.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$1
runtimes=tests/fixtures/runtimes # as Trainer ships them

say() { printf '\n%s\n' "$1"; }
run() {
  printf '\n$ %s\n\n' "$1"
  eval "$1"
}

say "What would the scheduler do? simulate plans the objects of files, with the scheduler's code and no cluster.
docs/try/cluster.yaml has four nodes with 8 GPUs, one with 1 GPU, and the queues of two teams, of small models
and of guests. A PodGroup is the pods that start together: pg-night is that of TrainJob night.
Tables and nodes are as after the last cycle; the decisions of each cycle follow.
bound: a pod has its node. nominated: it waits for evicted pods that terminate there."

say "ACT 1. Four TrainJobs, and idle nodes: all start. night is of guests, a queue that owns no GPU."
run "$program simulate -f docs/try/cluster.yaml -f docs/try/first.yaml \\
    -f $runtimes/torch-distributed.yaml"

say "ACT 2. They run (running.yaml), and five more arrive (second.yaml).
- moe is within the quota of team-b: the whole TrainJob night is evicted for it, and waits.
- eval waits: the launcher of moe comes later and has a reserved place, so that no node has 8 GPUs free.
- sft waits: it would exceed the limit of team-a. draft waits: 0.1 of the shared GPU is left.
- The initializers of tune start; its node is planned when they are Complete."
second="$program simulate --cycles 2 -f docs/try/cluster.yaml -f docs/try/running.yaml \\
    -f docs/try/second.yaml -f $runtimes/torch-distributed.yaml \\
    -f $runtimes/deepspeed-distributed.yaml \\
    -f $runtimes/torchtune-llama3.2-1b.yaml"
run "$second"

say "WHAT WOULD HELP? The same with two nodes more: eval starts, too, and night is evicted for it. One node
is idle then: sft waits for its limit, and night needs two such nodes at once."
run "$second \\
    -f docs/try/more-nodes.yaml"

say "Next: in docs/try/second.yaml, let draft ask for gpu-fraction 0.1 and repeat \`make try\`: it starts.
(running.yaml is act 1 as it runs, and does not follow first.yaml.) \`make demo\` runs these nine TrainJobs
on a real control plane. docs/glossary.md has the words, docs/cli.md all of simulate, docs/reasons.md each
reason, docs/install.md the way into a cluster."
