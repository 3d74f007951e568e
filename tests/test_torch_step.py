"""Training steps on PyTorch, beyond what every backend must do; in a process of its own."""

from test_backend_contract import needs, run_checks


def test_steps_on_pytorch_are_taken_back_and_their_memory_is_predicted(tmp_path):
    needs("torch")
    run_checks(["torch_step_checks.py"], backend="torch", keras_home=tmp_path, CUDA_VISIBLE_DEVICES="")
