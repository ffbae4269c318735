"""Does a race find the rate? SelfTuner beside the best fixed rate, at equal cost.

    pip install '.[train,bench]'
    python -m benchmarks.races --data-dir DIR --text FILE
    python -m benchmarks.races --table

The first command trains whatever is not in docs/results/races.jsonl yet, one line a run, and can be
stopped at any time; the second reads that file alone. DIR holds CIFAR-10 and Fashion-MNIST as
``annealtune train`` finds them, FILE is a text (tinyshakespeare).

Cost is counted in gradients, those of every arm included, and nobody gets more than a task's steps:
a run with races trains on fewer minibatches than a run without. The measure is the test loss
divided by that of the oracle: the best fixed rate of a half-decade grid over the same base, held,
decayed over the last quarter and averaged in the same way. The oracle's rate is chosen by the TEST
loss of seed 0 and used for all seeds, so no method that sees only training losses can be expected
to reach 1.00.

The seed decides the initial weights, the minibatches and the dropout, and is the same for all
methods. These are the tasks that the constants of the races were chosen on.

- `task`: what a task is; `images`, `text`, `functions`, `tables`: the seventeen; `catalogue`: their
  names;
- `methods`: the tuner, fixed rates and controls; `oracle`: the search for the best fixed rate;
  `variants`: the library with another constant;
- `records`: the file; `table`: ratios, as Markdown.
"""
