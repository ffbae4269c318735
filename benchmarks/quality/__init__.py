"""What a tuner reaches beside the best fixed rate and its peers, at equal cost.

    pip install '.[train,bench]'
    python -m benchmarks.quality --data-dir DIR --text FILE --jobs 2

trains whatever is not in docs/results/quality.jsonl yet, one line a run, and writes the page
docs/results/pages/quality.html; it can be stopped at any time and goes on where it was. `make
results` writes the page without running anything. DIR holds CIFAR-10 and Fashion-MNIST as
``annealtune train`` finds them, FILE is a text (tinyshakespeare).

Cost is counted in gradients, those of every arm included, and nobody gets more than a task's steps;
a forward alone counts as a third. The output of a run is the best of 20 looks at validation, for
every method, and at each look an average of the weights is scored: its own, or SelfTuner's where a
method has none; SGD-SA alone is scored at its last weights. The measure is the test score of the
output divided by that of the *oracle*: the best rate of a half-decade grid over the same base,
warmed up, held, decayed over the last quarter and averaged as SelfTuner does it. The oracle's rate
has the lowest mean validation score over seeds 0 to 2 and is kept for all seeds. The scores at the
end of each run are recorded beside.

Some tasks are *open*: constants of the library were chosen on them. The others are *sealed*:
nothing was chosen by what the tuner does on them (docs/decisions/0016-proof.md). They are run by

    python -m benchmarks.quality --half sealed --data-dir DIR --text FILE --jobs 2

alone, which makes the whole table: every method on five seeds, or on three where one run takes more
than 20 seconds (`plan.seeds_of`); docs/results/quality.md has its parts. The seed decides the
initial weights, the minibatches and the dropout, and is the same for all methods.

- `tasks`: what is trained; `bases`: the optimizers that are tuned, and their grids;
- `tuned`: ours, the random arm, and the method of the paper; `fixed`: runs at one rate; `peers`,
  `autolrs`, `line_search`, `version_0_2`: the others; `gradients`: what a run costs; `average`: of
  the weights, for those that have none; `methods`: all by name;
- `plan`: which runs there are; `oracle`: the best rate that was tried; `variants`: the library with
  another constant or rule;
- `summaries`: ratios, means, comparisons; `shown`: the methods for people; `page`, `figures`: what
  is shown.
"""
