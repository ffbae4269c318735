"""Final quality of our methods and of their peers at equal cost, over several tasks and seeds.

    pip install '.[train,bench]'
    ANNEALTUNE_DATA=DIR python -m benchmarks.quality --text FILE --jobs 2
    python -m benchmarks.quality --page docs/results/quality.html --markdown

The first command trains whatever is not in docs/results/quality.jsonl yet, one line a run, and can
be stopped at any time; the second reads that file alone. DIR holds CIFAR-10 and Fashion-MNIST as
``annealtune train`` finds them, FILE is the text of the language model (tinyshakespeare).

Cost is counted in forwards, a backward as two. A task's budget is three times the steps of the
reference, and nobody gets more: whose step is dearer makes fewer of them.

- `tasks`: data, nets, metrics; `methods`: ours, peers and references; `starts`: how each is built;
  `own_peers`: SAM and the line search, which have no package to install; `trainers`: how each of
  them makes a step;
- `run`: one run and what is counted in it; `plan`: which runs there are and which are missing;
- `records`: the file; `workers`: the processes;
- `summaries`: means, intervals, ranks; `page`: HTML and Markdown.
"""
