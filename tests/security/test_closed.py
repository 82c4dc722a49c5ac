"""Closed by default, without a cluster: modes of files, names, redaction, bounded logs."""

from __future__ import annotations

import ast
import logging
import os
import re
import socket
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.channels.broker import _settings
from penstock.channels.kafka import KafkaChannel, KafkaOptions
from penstock.channels.kafka_access import client_settings, forget, make_known, password_of
from penstock.errors import ConfigurationError, PenstockError
from penstock.machine import secrets
from penstock.machine.peers import is_stranger, user_of
from penstock.machine.processes import ChildProcesses, bound_log, bound_logs, log_tail, wait_until
from penstock.machine.secrets import (
    HIDDEN,
    RedactingFormatter,
    is_secret,
    kept_secret,
    new_secret,
    redacted,
    remember_all,
)
from penstock.providers.joining import Join
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.spark.access import Access, settings_at
from penstock.spark.access import forget as forget_access
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.spark.managers.standalone import Standalone
from penstock.topology.file import parse_topology

from ..spark_units.conftest import one_operator

SOURCE = Path(secrets.__file__).parents[1]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- what is written down --------------------------------------------------------------------------------


def test_a_secret_that_several_make_at_once_is_one_and_for_its_owner_alone(tmp_path: Path) -> None:
    for number in range(20):
        file, together = tmp_path / f"{number}", threading.Barrier(4)

        def make(file: Path = file, together: threading.Barrier = together) -> str:
            together.wait(10)
            return kept_secret(file)

        with ThreadPoolExecutor(4) as pool:
            found = {each.result() for each in [pool.submit(make) for _ in range(4)]}
        assert found == {file.read_text()}
        assert mode(file) == 0o600
    assert len(list(tmp_path.iterdir())) == 20


def test_the_secrets_of_a_cluster_are_for_their_owner_alone_and_found_by_its_port(tmp_path: Path) -> None:
    folder, access = tmp_path / "cluster", Access.new()
    access.keep(folder, 7077, {"spark.driver.host": "127.0.0.1"})
    assert mode(folder) == 0o700
    for name in ("access.json", "conf/spark-defaults.conf"):
        assert mode(folder / name) == 0o600, name
    assert Access.read(folder) == access
    assert settings_at("spark://127.0.0.1:7077")["spark.authenticate.secret"] == access.secret
    assert settings_at("spark://localhost:7077") == settings_at("spark://127.0.0.1:7077")
    assert settings_at("spark://elsewhere:7077") == settings_at("local[*]") == {}
    defaults = (folder / "conf" / "spark-defaults.conf").read_text().splitlines()
    assert f"spark.authenticate.secret {access.secret}" in defaults
    forget_access(folder, 7077)
    assert settings_at("spark://127.0.0.1:7077") == {}
    assert not (folder / "access.json").exists()


def test_two_clusters_have_two_secrets() -> None:
    first, second = Access.new(), Access.new()
    assert len({first.secret, second.secret, first.page_key, second.page_key}) == 4


def test_a_worker_gets_its_secret_by_a_file_and_not_by_its_command(tmp_path: Path) -> None:
    manager = Standalone(tmp_path, ChildProcesses("none"), port=7077)
    join = manager.join("host-1", "127.0.0.11", 1, 512, tmp_path / "work" / "host-1")
    said = " ".join((*join.command, *join.environment.values()))
    assert manager._access.secret not in said
    assert manager._access.page_key not in said
    join.put()
    ((path, content),) = join.files.items()
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert path.read_text() == content
    for setting in (
        f"spark.authenticate.secret {manager._access.secret}",
        "spark.network.crypto.enabled true",
        "spark.network.crypto.saslFallback false",
        "spark.ui.killEnabled false",
        "spark.master.rest.enabled false",
        "spark.master.ui.decommission.allow.mode DENY",
    ):
        assert setting in content.splitlines()
    assert str(path) in join.command


def test_a_join_without_files_needs_none() -> None:
    Join(("true",)).put()


def test_the_broker_asks_for_its_password_everywhere(tmp_path: Path) -> None:
    password = password_of(tmp_path / "broker")
    assert password == password_of(tmp_path / "broker")
    assert mode(tmp_path / "broker" / "password") == 0o600
    settings = _settings("127.0.0.1", 9092, 9093, tmp_path, password)
    listeners = [listener.partition(":")[0] for listener in settings["listeners"].split(",")]
    protocols = dict(pair.split(":") for pair in settings["listener.security.protocol.map"].split(","))
    assert {protocols[name] for name in listeners} == {"SASL_PLAINTEXT"}
    for name in listeners:
        assert password in settings[f"listener.name.{name.lower()}.plain.sasl.jaas.config"]


def test_clients_find_the_password_of_a_broker_of_ours_by_its_address(tmp_path: Path) -> None:
    password = password_of(tmp_path / "broker")
    assert client_settings("127.0.0.1:9092") == {}
    make_known(tmp_path / "broker", 9092)
    assert password in client_settings("127.0.0.1:9092")["sasl.jaas.config"]
    assert client_settings("elsewhere:9092") == {}
    channel = KafkaChannel(KafkaOptions(), "127.0.0.1:9092", "x")
    for options in (channel._sink(), channel._broker()):
        assert options["kafka.security.protocol"] == "SASL_PLAINTEXT"
        assert password in options["kafka.sasl.jaas.config"]
    forget(tmp_path / "broker", 9092)
    assert client_settings("127.0.0.1:9092") == {}


def test_a_broker_of_the_users_is_reached_as_his_file_says(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text('# mine\nsecurity.protocol=SASL_SSL\n\nsasl.jaas.config=X required password="abc def";\n')
    found = KafkaChannel(KafkaOptions(client_file=str(file)), "there:9092", "x")._broker()
    assert found["kafka.security.protocol"] == "SASL_SSL"
    assert found["kafka.sasl.jaas.config"] == 'X required password="abc def";'
    file.write_text("sasl.password-without-a-sign")
    with pytest.raises(ConfigurationError, match="line 1: expected name=value") as error:
        client_settings("there:9092", str(file))
    assert "without-a-sign" not in str(error.value)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        client_settings("there:9092", str(tmp_path / "none"))


def test_a_run_folder_and_its_plan_are_for_their_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    folder = RunFolder.at(tmp_path / "run")
    folder.write_plan(RunPlan.of(one_operator(), "r", settings={"spark.my.password": "abcdef"}))
    assert mode(folder.root) == 0o700
    assert mode(folder.root / "plan.json") == 0o600


def test_a_childs_log_is_for_its_owner_alone(tmp_path: Path) -> None:
    children = ChildProcesses("closed")
    children.start("one", ["true"], log=tmp_path / "one.log")
    children.stop_all()
    assert mode(tmp_path / "one.log") == 0o600


# --- names -----------------------------------------------------------------------------------------------

NAMED = (
    'name: "%s"\nsources: {s: {}}\noperators: {o: {inputs: s}}',
    'name: t\nsources: {"%s": {}, s: {}}\noperators: {o: {inputs: [s, "%s"]}}',
    'name: t\nsources: {s: {}}\noperators: {"%s": {inputs: s}}',
    'name: t\nsources: {s: {}}\noperators: {o: {inputs: s}}\nunits: {"%s": {operators: [o]}}',
    'name: t\nsources: {s: {}}\noperators: {o: {inputs: s}}\nchannels: {"%s": {kind: files}}',
)
"""Topologies with a name to be chosen."""
AWAY = ["../away", "..", "a/b", "/etc", "a\0b"]


@pytest.mark.parametrize("name", AWAY)
def test_no_name_leaves_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(PenstockError):
        LocalCluster(name=name, folder=tmp_path / "x")
    with pytest.raises(PenstockError):
        LocalCluster.open(name)
    hosts = LocalCluster(0, folder=tmp_path / "y").local_hosts
    with pytest.raises(PenstockError):
        hosts.add(name, 1, 512)
    for text in NAMED:
        parse_topology(text.replace("%s", "fine"))
        with pytest.raises(PenstockError):
            parse_topology(text.replace("%s", name.replace("\0", "\\0")))
    assert sorted(path.name for path in tmp_path.iterdir()) in ([], ["cache"], ["cache", "y"], ["y"])


def test_no_code_is_read_out_of_a_file_of_data() -> None:
    """Nothing unpickles, evaluates or loads YAML with tags: what lies in a folder is data."""
    dangerous = {"pickle", "cPickle", "dill", "shelve", "marshal", "cloudpickle", "joblib"}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not dangerous & {alias.name.partition(".")[0] for alias in node.names}, path
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in dangerous, path
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), path


# --- redaction -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("spark.ssl.keyPassword=hunter2 is wrong", f"spark.ssl.keyPassword={HIDDEN} is wrong"),
        (
            'PlainLoginModule required username="me" password="a b";',
            f'PlainLoginModule required username="me" password="{HIDDEN}";',
        ),
        ("Authorization: Basic bWU6aHVudGVyMg==", f"Authorization: Basic {HIDDEN}"),
        ("passphrase='three little words', more", f"passphrase='{HIDDEN}', more"),
        ("fs.s3a.encryption.key=c2VjcmV0", f"fs.s3a.encryption.key={HIDDEN}"),
        ("Authorization: Bearer abcdef123456.x", f"Authorization: Bearer {HIDDEN}"),
        ("jdbc:postgresql://me:hunter2@there/db", f"jdbc:postgresql://me:{HIDDEN}@there/db"),
        ('{"token": "abcdef"}', f'{{"token": "{HIDDEN}"}}'),
        ("fs.s3a.secret.key: AKIA123", f"fs.s3a.secret.key: {HIDDEN}"),
        ("7 tokens were sold", "7 tokens were sold"),
        ("the password is asked for", "the password is asked for"),
    ],
)
def test_what_is_said_holds_no_secret(said: str, shown: str) -> None:
    assert redacted(said) == shown


def test_a_known_secret_is_hidden_wherever_it_turns_up() -> None:
    secret = new_secret()
    remember_all({"spark.hadoop.my.secret.key": "xyzzy-123", "spark.app.name": "plain-name"})
    assert redacted(f"it said {secret}!") == f"it said {HIDDEN}!"
    assert redacted("xyzzy-123 plain-name") == f"{HIDDEN} plain-name"
    try:
        raise ValueError(f"no such key {secret}")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "x", 1, "bad %s", (secret,), sys.exc_info())
    assert secret not in RedactingFormatter().format(record)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("spark.authenticate.secret", True),
        ("spark.hadoop.fs.s3a.access.key", True),
        ("spark.ssl.keyStorePassword", True),
        ("kafka.sasl.jaas.config", True),
        ("spark.kubernetes.authenticate.oauthToken", True),
        ("spark.hadoop.fs.gs.auth.service.account.private.key", True),
        ("spark.hadoop.fs.s3a.encryption.key", True),
        ("spark.hadoop.fs.azure.sas.container.account", True),
        ("spark.kubernetes.authenticate.clientKeyData", True),
        ("my.passphrase", True),
        ("DB_PASS", True),
        ("db.pwd", True),
        ("spark.sql.legacy.bypass", False),
        ("spark.authenticate", False),
        ("spark.executor.memory", False),
        ("spark.network.crypto.enabled", False),
    ],
)
def test_settings_are_known_to_be_secret_by_their_names(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


# --- whose connection it is ------------------------------------------------------------------------------


def test_the_user_of_a_connection_is_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())
        peer, here = client.getsockname(), server.getsockname()
        if not Path("/proc/net/tcp").exists():
            pytest.skip("the kernel does not tell")
        assert user_of(peer, here) == os.getuid()
        assert not is_stranger(peer, here)
        assert user_of(("127.0.0.1", 1), here) is None


# --- growth ----------------------------------------------------------------------------------------------


def test_a_log_that_grows_is_cut_while_its_process_goes_on_writing(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    children = ChildProcesses("loud", folder=tmp_path / "records")
    script = "i=0; while true; do i=$((i+1)); echo line $i; done"
    children.start("loud", ["sh", "-c", script], log=log)
    try:
        for _ in range(3):
            assert wait_until(lambda: log.stat().st_size > 200_000, 30)
            assert bound_logs(tmp_path / "records", most=100_000) == 1
            assert log.stat().st_size < 200_000
        assert (log.with_name("child.log.1")).stat().st_size <= 12_500
        assert wait_until(lambda: "line" in log_tail(log), 10), "it goes on where the file begins again"
        assert b"\0" not in log.read_bytes()[:1000]
    finally:
        children.stop_all()
    assert bound_log(tmp_path / "none.log") is False


# --- the design note -------------------------------------------------------------------------------------


def test_every_test_that_the_design_note_names_exists() -> None:
    root = Path(__file__).parents[2]
    note = (root / "docs" / "designs" / "0013-faults.md").read_text()
    code = "".join(path.read_text() for path in (root / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", note))
    assert len(named) > 40
    assert [name for name in sorted(named) if f"def {name}(" not in code] == []
    assert all((root / path).exists() for path in re.findall(r"`(tests/[\w/.]+)`", note))
