# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Saves the tests' controllers and hosts the work that Ansible repeats in each of its many short processes.

Python imports this file at startup if it finds it: on the controllers through PYTHONPATH (see the Makefile), on the
hosts of the lab through a .pth file. Results are not cached, only code that was compiled from sources, and the archives
of modules.

- A module arrives as an archive with all of its imports; compiling these takes up to half of its CPU time.
- Modules and playbooks end with a garbage collection of all objects, which takes up to a quarter of a module's time.
- A task is a separate process. This process compiles the expressions and templates of the task and of all variables
that they use, which takes a sixth of a playbook's time. Another sixth is spent because its garbage collector writes to
all memory that it shares with the parent.
- A playbook compiles the plugins of collections and their imports.
- A module that runs on the controller itself is forked instead of started, see module_server.py.
- A playbook reads the sources of a module and of all its imports to put them into the archive, which takes a tenth of
its time.
"""

from __future__ import annotations

import _imp
import atexit
import gc
import marshal
import os
import sys
import zipimport
from types import CodeType
from typing import Any, Callable

_OWN = f"/var/tmp/natsops-compiled-{os.getuid()}"
_KEPT = f"{_OWN}/{sys.implementation.cache_tag}"
_compile = zipimport._compile_source  # type: ignore[attr-defined]


def _kept(folder: str, key: bytes, path: str, make: Callable[[], CodeType]) -> CodeType:
    """Return the code that is stored in the folder under this key, as the code of this path; create and store it if it
    is missing."""
    import hashlib

    kept = f"{folder}/{hashlib.sha256(key).hexdigest()}"
    try:
        with open(kept, "rb") as found:
            code: CodeType = marshal.load(found)
        _imp._fix_co_filename(code, path)  # type: ignore[attr-defined]
        return code
    except (OSError, EOFError, ValueError, TypeError):
        code = make()
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        with open(f"{kept}.{os.getpid()}", "wb") as file:
            marshal.dump(code, file)
        os.rename(file.name, kept)
    except OSError:
        pass  # tests use full and read-only disks
    return code


def _is_private(folder: str) -> bool:
    """Return whether only this user can write to a folder, which is created if it is missing. Any user may have created
    it first, in order to have this process run their code."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    found = os.lstat(folder)
    return found.st_uid == os.getuid() and found.st_mode & 0o170022 == 0o040000


def _compile_once(path: str, source: bytes) -> CodeType:
    """Return the code of a source at this path in an archive."""
    return _kept(_KEPT, source, path, lambda: _compile(path, source))


def _keep_plugins(folder: str) -> None:
    """Make ansible-core keep the compiled code of the collections' Python files, which it compiles in each run."""
    from ansible.utils.collection_loader import _collection_finder

    def compile_once(source: bytes | str, filename: str, **options: Any) -> CodeType:
        key = source if isinstance(source, bytes) else source.encode()
        return _kept(folder, key, filename, lambda: compile(source, filename, **options))

    _collection_finder.compile = compile_once


def _keep_templates(folder: str) -> None:
    """Make ansible-core 2.19 or later keep the compiled code of its templates, which also depends on the collection's
    filters."""
    from jinja2.environment import Environment, TemplateExpression

    compile_any, compile_expression = Environment.compile, Environment.compile_expression
    compiled: list[CodeType] = []

    def key(environment: Environment, kind: str, source: str) -> bytes:
        """Return all other inputs of the compilation, or an empty value for environments other than Ansible's."""
        module = sys.modules[type(environment).__module__]
        if module.__name__ != "ansible._internal._templating._jinja_bits":
            return b""
        context = module._TemplateCompileContext.current(optional=True)
        syntax = [getattr(environment, name) for name in module._TEMPLATE_OVERRIDE_FIELD_NAMES]
        return repr((kind, context and context.escape_backslashes, syntax, str(source))).encode()

    def compile_text(self: Environment, source: Any, *more: Any, **options: Any) -> Any:
        def make() -> Any:
            return compile_any(self, source, *more, **options)

        if isinstance(source, str) and not more and not options and (found := key(self, "template", source)):
            return _kept(folder, found, "<template>", make)
        compiled[:] = [make()]
        return compiled[0]

    def compile_one(self: Environment, source: str, *more: Any) -> TemplateExpression:
        def make() -> CodeType:
            compile_expression(self, source)
            return compiled.pop()

        if not (found := key(self, "expression", source)):
            return compile_expression(self, source, *more)
        code = _kept(folder, found, "<template>", make)
        return TemplateExpression(self.template_class.from_code(self, code, self.make_globals(None)), *more)

    Environment.compile = compile_text  # type: ignore[method-assign]
    Environment.compile_expression = compile_one  # type: ignore[assignment,method-assign]


def _keep_archives(folder: str) -> None:
    """Make ansible-core find the archives of modules that earlier runs built.

    ansible-core writes each archive under a temporary name that two runs would share, so each run has its own folder.
    New archives are moved at the end of the run.
    """
    import shutil

    from ansible import constants

    own, process = os.path.join(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache"), os.getpid()
    os.makedirs(folder, 0o700, exist_ok=True)
    os.mkdir(own)
    for name in os.listdir(folder):
        os.symlink(os.path.join(folder, name), os.path.join(own, name))

    def hand_on() -> None:
        made = [entry for entry in os.scandir(own) if not entry.is_symlink() and not entry.name.endswith("-part")]
        for entry in made if os.getpid() == process else ():
            try:
                shutil.copyfile(entry.path, f"{folder}.{process}")
                os.rename(f"{folder}.{process}", os.path.join(folder, entry.name))
            except OSError:
                pass  # The disk is full, or the installation has been removed.

    # Move the archives before ansible-core removes its temporary folder.
    atexit.register(hand_on)


def _control() -> None:
    """Reduce the cost of running ansible-playbook with an installed collection; the cache is part of the
    installation."""
    from importlib.metadata import version

    paths = os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(os.pathsep)
    installed = "ansible_collections/natsops/jetstream/MANIFEST.json"
    if collections := next((path for path in paths if os.path.exists(f"{path}/{installed}")), None):
        kept = f"{collections}/.kept/{version('ansible-core')}-{sys.implementation.cache_tag}"
        _keep_plugins(f"{kept}/plugins")
        _keep_templates(f"{kept}/templates")
        _keep_archives(f"{kept}/modules")
    os.register_at_fork(before=gc.freeze, after_in_child=gc.disable)


gc.set_threshold(100_000)
atexit.register(gc.freeze)
if _is_private(_OWN):
    zipimport._compile_source = _compile_once  # type: ignore[attr-defined]
if sys.argv and os.path.basename(sys.argv[0]) == "ansible-playbook":
    # The hosts of the lab have only a copy of this file.
    if __name__ == "sitecustomize":
        import module_server

        module_server.install()
    _control()
