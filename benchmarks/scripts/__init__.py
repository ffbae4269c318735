"""Well-known training scripts in small, each by its recipe, two peers, SelfTuner and two controls.

    pip install '.[train,bench,frameworks]'
    python -m benchmarks.scripts --data-dir DIR --text FILE

trains whatever is not in docs/results/scripts.jsonl yet, one line a run, and prints a table, which
it also puts into docs/results/scripts.md; it can be stopped at any time and goes on where it was.
DIR holds CIFAR-10 and Fashion-MNIST as ``annealtune train`` finds
them, FILE is a text (tinyshakespeare).

The scripts are written anew in the style of those that everybody starts from:

- `nanogpt`: a character transformer on a text; `makemore`: one on words;
- `resnet`: images; `lstm`: a recurrent language model; `vae`: a variational autoencoder;
  `gcn`: a graph net on a citation-like graph;
- `huggingface`: a tiny GPT-2 in the Trainer; `autoencoder`: the first example of Lightning.

The methods:

- ``hand-tuned``: the optimizer, rate and schedule that this kind of script is used with;
- ``prodigy``: lr = 1 along a cosine, with safeguard_warmup, bias correction, weight decay 0.01;
- ``schedule-free-adamw``: its default rate, 5 % warm-up, BatchNorm recalibrated;
- ``self-tuned``: SelfTuner over AdamW, told nothing but the length;
- ``adamw-3e-3``: a control, the same without a race: warmed up, held at 3e-3, decayed, averaged and
  looked at as SelfTuner does it;
- ``random-arm``: a control, the same with races that are decided by chance.

All have the same output: there are about 20 looks at a validation set, the weights with the lowest
loss are kept, and their loss on a third part is the result. Each look scores the last weights and
an average of them: SelfTuner keeps one, ``hand-tuned`` and ``prodigy`` are given the same, weights
of every eighth step, in a window that shrinks while their rate decays. Schedule-Free is an average
itself; in the two frameworks SelfTuner's average alone is scored. All may compute the same number
of gradients; what SelfTuner's arms cost is taken off its steps. Looks cost nothing. The seed
decides initial weights, minibatches and noise, and is the same for all methods.
"""
