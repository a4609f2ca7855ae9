"""Checkpoints of Keras models in a directory: what `ModelCheckpoint` writes."""

import os
import re
from typing import Any, List, Set

FILE_SUFFIXES = (".keras", ".h5", ".hdf5")


def checkpoint_step(checkpoint: str) -> int:
    """Returns the step, or epoch, in the name of a checkpoint: `…/model.ckpt-300`."""
    found = re.search(r"-(\d+)(?:\.index|\.keras|\.weights\.h5|\.h5|\.hdf5)?/?$", checkpoint)
    if found is None:
        raise ValueError("`{}` is not the name of a checkpoint: the training step is missing".format(checkpoint))
    return int(found.group(1))


def keras_checkpoints(model_dir: str) -> Set[str]:
    """Returns the paths of weights and whole models in a directory whose names end with a step."""
    import tensorflow as tf

    names = tf.io.gfile.listdir(model_dir) if tf.io.gfile.isdir(model_dir) else []
    return {os.path.join(model_dir, name) for name in _complete(model_dir, [name.rstrip("/") for name in names])}


def _complete(model_dir: str, names: List[str]) -> Set[str]:
    import tensorflow as tf

    found = set()
    for name in names:
        if re.search(r"-\d+(\.index|\.keras|\.weights\.h5|\.h5|\.hdf5)?$", name) is None:
            continue
        if name.endswith(".index"):
            # The index is written last.
            found.add(name[: -len(".index")])
        elif name.endswith(FILE_SUFFIXES) or tf.io.gfile.exists(os.path.join(model_dir, name, "saved_model.pb")):
            found.add(name)
    return found


def load_checkpoint(model: Any, checkpoint: str) -> None:
    """Loads the weights of a checkpoint into a model. A saved optimizer, which may be Horovod's, is not needed."""
    import tensorflow as tf

    is_model = checkpoint.endswith(FILE_SUFFIXES) and not checkpoint.endswith(".weights.h5")
    if is_model or tf.io.gfile.isdir(checkpoint):
        model.set_weights(tf.keras.models.load_model(checkpoint, compile=False).get_weights())
    else:
        model.load_weights(checkpoint)
