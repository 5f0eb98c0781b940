"""Tests of the program that runs the legs, with legs of their own."""

import io
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import leg as legs
import run
import table

PYTHON = shlex.quote(sys.executable)
# A server that prints its process id in the place of a URL, and ends well when it is interrupted, or not.
SERVER = f"{PYTHON} -c 'import os, time\nprint(os.getpid(), flush=True)\ntry: time.sleep(60)\nexcept KeyboardInterrupt: os._exit(CODE)'"


def outcome(leg):
    """Whether a leg passed, and its output."""
    with tempfile.NamedTemporaryFile() as file:
        passed = legs.run(leg, legs.Processes(), file)
        return passed, pathlib.Path(file.name).read_text()


def leg(name="a/leg", commands=("true",), **rest):
    return legs.Leg(name=name, shows="", run=list(commands), **rest)


class OneLeg(unittest.TestCase):
    def test_a_failed_command_fails_the_leg_and_the_next_one_still_runs(self):
        passed, output = outcome(leg(commands=["sh -c 'echo one; exit 3'", "echo two"]))
        self.assertFalse(passed)
        self.assertIn("one\nerror: sh ended with code 3\n", output)
        self.assertIn("two\n", output)

    def test_a_server_runs_while_its_commands_do_and_not_longer(self):
        server = legs.Server("server", SERVER.replace("CODE", "0"))
        passed, output = outcome(leg(servers=[server], commands=["kill -0 {server}", "echo id={server}"]))
        self.assertTrue(passed, output)
        pid = output.rpartition("\nid=")[2].strip()
        self.assertIsNone(legs.began(int(pid)))

    def test_a_server_that_ends_badly_fails_its_leg_unless_that_does_not_count(self):
        for ends_well in (True, False):
            server = legs.Server("server", SERVER.replace("CODE", "7"), ends_well=ends_well)
            passed, output = outcome(leg(servers=[server]))
            self.assertEqual(passed, not ends_well, output)

    def test_a_server_that_does_not_start_fails_its_leg_with_its_log(self):
        server = legs.Server("server", "sh -c 'echo no socket >&2; exit 1'")
        passed, output = outcome(leg(servers=[server], commands=["echo not reached"]))
        self.assertFalse(passed)
        self.assertIn("did not start", output)
        self.assertIn("no socket", output)
        self.assertNotIn("\nnot reached", output)

    def test_a_command_that_hangs_is_ended_and_fails_its_leg(self):
        passed, output = outcome(leg(commands=["sleep 60"], limit=0))
        self.assertFalse(passed)
        self.assertIn("sleep 60 did not end within", output)

    def test_a_stop_ends_what_programs_have_started_in_sessions_of_their_own(self):
        processes = legs.Processes()
        process = processes.start(["sh", "-c", "setsid sleep 61 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
        child = int(process.stdout.readline())
        process.stdout.close()
        processes.stop_all()
        process.wait()
        self.assertIsNone(legs.began(child))
        with self.assertRaises(legs.Failed):
            processes.start(["true"])


class ManyLegs(unittest.TestCase):
    def went(self, chosen, needs=()):
        """The exit code of a run of these legs, and what it printed."""
        with mock.patch.object(run, "NEEDS", list(needs)), mock.patch("sys.stdout", io.StringIO()) as out:
            code = run.Run(chosen, show_output=False).go()
        return code, out.getvalue()

    def test_the_output_of_a_failure_is_printed_in_full_and_that_of_a_success_is_not(self):
        code, shown = self.went([leg("a/good", ["echo unseen"]), leg("a/bad", ["sh -c 'echo seen; exit 1'"])])
        self.assertEqual(code, 1)
        self.assertIn("✔ a/good", shown)
        self.assertIn("seen\nerror: sh ended with code 1", shown)
        self.assertNotIn("unseen", shown)
        self.assertIn("again: ./dev leg a/bad", shown)

    def test_what_a_leg_needs_comes_first_and_without_it_the_leg_is_not_run(self):
        for command, code in (("true", 0), ("false", 1)):
            need = leg("need", [command], slots=0)
            result, shown = self.went([leg("a/leg", needs=["need"]), leg("a/next", needs=["a/leg"])], [need])
            self.assertEqual(result, code)
            self.assertEqual("a/next was not run" in shown, code == 1)

    def test_legs_with_one_turn_never_run_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = f"sh -c 'mkdir {folder}/lock && sleep 0.3 && rmdir {folder}/lock'"
            code, shown = self.went([leg(f"a/{n}", [alone], turn="one") for n in range(3)])
        self.assertEqual(code, 0, shown)

    def test_small_legs_do_not_keep_a_large_one_waiting(self):
        with tempfile.TemporaryDirectory() as folder:
            note = "sh -c 'sleep 0.2; echo NAME >>" + folder + "/order'"
            small = [leg(f"a/{n}", [note.replace("NAME", "small")]) for n in range(8)]
            large = leg("a/large", [note.replace("NAME", "large")], slots=run.SLOTS)
            self.assertEqual(self.went([*small[:1], large, *small[1:]])[0], 0)
            self.assertEqual(pathlib.Path(folder, "order").read_text().split()[:2], ["small", "large"])

    def test_an_interrupt_ends_everything(self):
        with tempfile.TemporaryDirectory() as folder:
            code = (
                "import sys, signal; sys.path.insert(0, sys.argv[1]); import leg, run\n"
                "one = run.Run([leg.Leg(name='a/leg', shows='', run=['sh -c \"echo $$ >{}/pid; sleep 60\"'])], False)\n"
                "signal.signal(signal.SIGINT, lambda *_: one.stop())\n"
                "sys.exit(one.go())"
            ).format(folder)
            runner = subprocess.Popen([sys.executable, "-c", code, os.path.dirname(__file__)], stdout=subprocess.DEVNULL)
            pid = pathlib.Path(folder, "pid")
            while not pid.exists() or not pid.read_text():
                self.assertIsNone(runner.poll())
                time.sleep(0.02)
            runner.send_signal(legs.signal.SIGINT)
            self.assertEqual(runner.wait(30), 130)
            self.assertIsNone(legs.began(int(pid.read_text())))


class Table(unittest.TestCase):
    def test_names_are_unique_and_needs_exist(self):
        names = [row.name for row in (*table.NEEDS, *table.LEGS)]
        self.assertEqual(len(names), len(set(names)))
        for row in table.LEGS:
            self.assertLessEqual(set(row.needs), set(names))
            self.assertLessEqual(row.slots, run.SLOTS)

    def test_every_name_in_a_command_is_known(self):
        for row in (*table.NEEDS, *table.LEGS):
            known = dict.fromkeys([*legs.PLACES, "results", "folder", "port"], "x")
            for command in (*(server.command for server in row.servers), *row.run):
                known.update({server.name: "x" for server in row.servers})
                self.assertNotIn("{", " ".join(legs.filled(command, known)), row.name)


if __name__ == "__main__":
    unittest.main()
