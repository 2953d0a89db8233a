"""tools/step_gaps.py on traces that are made up: step_gaps_test.py PROGRAM"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)


def kernel(begin, end, name="gemm", gpu=100, stream=7):
    return {"ph": "X", "pid": gpu, "tid": stream, "cat": "kernel", "name": name, "ts": begin, "dur": end - begin, "args": {}}


def steps(begin, *, gpu=100, gap=0):
    """Three steps of 100 us, of which the kernels leave `gap` us before the next step."""
    return [part for i in range(3)
            for part in (kernel(begin + 100 * i, begin + 100 * i + 20, "embedding_packs", gpu=gpu),
                         kernel(begin + 100 * i + 20, begin + 100 * i + 100 - gap, gpu=gpu))]


def run(slices, *args):
    head = [{"ph": "M", "pid": 100, "name": "process_name", "args": {"name": "GPU 0"}},
            {"ph": "M", "pid": 101, "name": "process_name", "args": {"name": "GPU 1"}},
            {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "rank 0"}}]
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json"
        trace.write_text(json.dumps({"traceEvents": head + slices}))
        return subprocess.run([sys.executable, PROGRAM, trace, *args], capture_output=True, text=True, check=False)


class StepGaps(unittest.TestCase):
    def test_steps_without_gaps_have_none(self):
        result = run(steps(0), "--steps", "3", "--most", "0")
        self.assertIn("GPU 0, stream 7, run 1: 0.0 of 200.0 us idle (0.00%)", result.stdout)
        self.assertEqual(result.returncode, 0)

    def test_gaps_are_summed_and_the_longest_is_named(self):
        result = run(steps(0, gap=5), "--steps", "3", "--most", "0.04")
        self.assertIn("10.0 of 200.0 us idle (5.00%), longest 5.0 us, before embedding_packs", result.stdout)
        self.assertEqual(result.returncode, 1)

    def test_what_lies_before_and_between_runs_does_not_count(self):
        result = run(steps(0, gap=50) + steps(1000) + steps(2000), "--steps", "3", "--runs", "2", "--most", "0")
        self.assertEqual(result.stdout.count(" 0.0 of 200.0"), 2)
        self.assertEqual(result.returncode, 0)

    def test_another_stream_fills_a_gap(self):
        result = run(steps(0, gap=5) + [kernel(0, 300, "run_norm", stream=9)], "--steps", "3", "--most", "0")
        self.assertEqual(result.returncode, 0)

    def test_another_gpu_does_not(self):
        result = run(steps(0, gap=5) + steps(0, gpu=101), "--steps", "3", "--most", "0.04")
        self.assertIn("GPU 0, stream 7: 5.00% is above 4.00%", result.stdout)
        self.assertNotIn("GPU 1, stream 7: ", result.stdout)

    def test_slices_of_ranks_on_the_cpu_are_not_kernels(self):
        result = run(steps(0, gap=5) + [{**kernel(0, 300), "pid": 0}], "--steps", "3", "--most", "0.04")
        self.assertEqual(result.returncode, 1)

    def test_a_trace_with_fewer_steps_is_named(self):
        result = run(steps(0), "--steps", "4")
        self.assertIn('3 kernels "embedding" on stream 7, expected 1 runs of 4', result.stderr)
        self.assertEqual(result.returncode, 1)


if __name__ == "__main__":
    unittest.main()
