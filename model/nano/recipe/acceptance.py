"""Acceptance of many sequences at once: one process a core, each with the drafter and reference.py."""

import multiprocessing
import os

import torch

import config
import export
import reference
from drafter import Drafter


def load_drafter(pair):
    c = config.Target()
    return export.read_drafter(pair / "draft", Drafter(config.Drafter(), c.hidden_size, c.max_position_embeddings + 64))


class Job:
    """One sequence: its tokens, the target's features, and the settings to run."""

    def __init__(self, pair, embed_tokens, tokens, features, names):
        self.pair, self.embed, self.tokens, self.features, self.names = pair, embed_tokens, tokens, features, names

    def sequence(self):
        return reference.Sequence(*load_drafter(self.pair), self.embed, self.tokens, self.features)

    def run(self, prompt, output):
        torch.set_grad_enabled(False)
        torch.set_num_threads(1)
        sequence = self.sequence()
        return {name: sequence.run(prompt, output, reference.SETTINGS[name]) for name in self.names}


def run_job(arguments):
    job, prompt, output = arguments
    return job.run(prompt, output)


def run_all(jobs, prompt, output):
    processes = max(1, min(len(jobs), os.cpu_count() or 1))
    if processes == 1:
        return [job.run(prompt, output) for job in jobs]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return pool.map(run_job, [(job, prompt, output) for job in jobs], chunksize=1)


def overall(runs, name):
    """runs: of each sequence, {setting: result of reference.Sequence.run}."""
    lengths = [n for run in runs if name in run for n in run[name]["accept_lengths"]]
    return {
        "rounds": len(lengths),
        "tokens": sum(lengths),
        "mean_accept_length": round(sum(lengths) / len(lengths), 4),
        "reached_depth": [round(sum(n > d for n in lengths) / len(lengths), 4) for d in range(1, max(lengths))],
    }
