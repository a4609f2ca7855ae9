"""tf-yarn's native Keras example: chief and worker are Horovod ranks with Gloo, without MPI or a launcher."""

import argparse
import logging
import os

from tf_yarn.tensorflow import KerasExperiment, TaskSpec, run_on_yarn


def experiment_of(model_dir, epochs):
    def experiment_fn():
        import importlib.metadata

        import horovod.tensorflow.keras as hvd
        import numpy as np
        import tensorflow as tf

        tf.keras.utils.set_random_seed(1 + hvd.rank())
        table = importlib.metadata.distribution("scikit-learn").locate_file("sklearn/datasets/data/iris.csv")
        rows = np.random.RandomState(1).permutation(np.loadtxt(table, delimiter=",", skiprows=1, dtype=np.float32))
        rows[:, :4] = (rows[:, :4] - rows[:, :4].mean(axis=0)) / rows[:, :4].std(axis=0)
        train, test = rows[30:], rows[:30]
        mine = train[hvd.rank() :: hvd.size()]
        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(16, activation="relu", input_shape=(4,)), tf.keras.layers.Dense(3, activation="softmax")]
        )
        optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.1 * hvd.size()))
        model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])

        class Report(tf.keras.callbacks.Callback):
            def on_train_end(self, logs=None):
                norm = sum(float((weight**2).sum()) for weight in self.model.get_weights())
                accuracy = self.model.evaluate(test[:, :4], test[:, 4], verbose=0)[1]
                print(f"rank {hvd.rank()} of {hvd.size()} weights {norm:.6f} accuracy {accuracy:.3f}", flush=True)

        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), Report()]
        if hvd.rank() == 0:
            path = os.path.join(model_dir, "model.ckpt-{epoch}")
            callbacks.append(tf.keras.callbacks.ModelCheckpoint(path, save_weights_only=True))
        return KerasExperiment(
            model=model,
            model_dir=model_dir,
            train_params={"batch_size": 10, "epochs": epochs, "verbose": 0, "callbacks": callbacks},
            input_data_fn=lambda: mine[:, :4],
            target_data_fn=lambda: mine[:, 4],
            validation_data_fn=lambda: (test[:, :4], test[:, 4]),
        )

    return experiment_fn


def main():
    parser = argparse.ArgumentParser(description="Train a Keras model of irises with Horovod.")
    add = parser.add_argument
    add("--environment", help="environment of the tasks: archive, virtual environment, or interpreter on all nodes")
    add("--model-dir", default="/tmp/tf-yarn-horovod", help="a directory shared by all tasks")
    add("--epochs", type=int, default=15)
    args = parser.parse_args()
    model_dir = args.model_dir if "://" in args.model_dir else os.path.abspath(args.model_dir)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(name)s: %(message)s")
    size = {"memory": "2 GiB", "vcores": 1}
    metrics = run_on_yarn(
        experiment_of(model_dir, args.epochs),
        {"chief": TaskSpec(**size), "worker": TaskSpec(**size)},
        pyenv_zip_path=args.environment,
        env={"TF_CPP_MIN_LOG_LEVEL": "2"},
        custom_task_module="tf_yarn.tensorflow.tasks.gloo_allred_task",
        name="horovod-iris",
    )
    print(f"trained for {metrics.total_training_duration}", flush=True)


if __name__ == "__main__":
    main()
