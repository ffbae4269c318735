"""ignite: the recorded loss is the loss function of the trainer; it calls the model by itself."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from annealtune import SelfTuner

EPOCHS = 12

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
training, validation = random_split(digits, [1437, 360])
batches = DataLoader(training, batch_size=64, shuffle=True)

model = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10))
base = torch.optim.AdamW(model.parameters())
tuner = SelfTuner(base, model=model, total_steps=EPOCHS * len(batches))
trainer = create_supervised_trainer(
    model,
    tuner,
    tuner.record(lambda x, y: nn.functional.cross_entropy(model(x), y)),
    model_fn=lambda _, x: x,  # the loss function is given the inputs
)
evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy()})


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate():
    with tuner.averaged():  # the average of the weights
        evaluator.run(DataLoader(validation, batch_size=360))


trainer.run(batches, max_epochs=EPOCHS)
print(tuner.races[-1])
print(f"{tuner.steps} steps, accuracy {evaluator.state.metrics['accuracy']:.1%}")
