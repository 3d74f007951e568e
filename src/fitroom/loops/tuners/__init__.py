"""Optuna and keras-tuner with trials in processes of their own. They search; each trial has fresh memory."""
