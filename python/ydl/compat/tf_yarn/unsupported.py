"""Functions of tf-yarn that are not supported. They exist, and say what to use instead."""

from typing import Any, Callable, NoReturn


def unsupported(name: str, hint: str) -> Callable[..., NoReturn]:
    """Returns a function that raises an error with the replacement."""

    def raise_error(*args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError("`{}` is not supported: {}".format(name, hint))

    raise_error.__name__ = name
    return raise_error


standalone_client_mode = unsupported(
    "standalone_client_mode",
    "the training would end with the client that drives it. Pass the training as an experiment function to `run_on_yarn`, or a "
    "program that uses TensorFlow directly as `custom_task_module`; it finds the cluster in `TF_CONFIG`",
)
skein_global_daemon = unsupported("skein_global_daemon", "ydl has no daemon; leave it out")
app_logs = unsupported("app_logs", "`ydl logs ID` prints the logs of a job, and `RunFailed.log` has the last lines of a failure")
