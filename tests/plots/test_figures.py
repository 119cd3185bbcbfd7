"""Pictures are written whole or not at all, and drawing them leaves no traces in matplotlib."""

import subprocess
import sys
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from vanilla_transformer.plots import (
    figures,
    plot_attention_lines,
    plot_attention_maps,
    plot_learning_curve,
    plot_schedule,
)
from vanilla_transformer.plots.figures import color_of, fonts_for, look_of, printable

from .conftest import LOG, assert_is_a_picture


class TestFiles:
    def test_failed_save_keeps_the_old_picture(self, path, monkeypatch):
        def fail_halfway(figure, file, **settings):
            file.write_bytes(b"half a picture")
            raise OSError("no space left on device")

        path.write_bytes(b"the old picture")
        monkeypatch.setattr(Figure, "savefig", fail_halfway)
        with pytest.raises(OSError, match="no space left"):
            plot_schedule({"constant": [1e-3]}, path)
        assert path.read_bytes() == b"the old picture"
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
        monkeypatch.undo()
        plot_schedule({"constant": [1e-3]}, str(path))
        assert_is_a_picture(path)

    def test_drawing_keeps_matplotlib_settings_and_backend(self, path):
        before = dict.copy(matplotlib.rcParams)
        plot_learning_curve(LOG, path)
        plot_attention_maps(np.eye(3)[None], ["a"] * 3, ["b"] * 3, path)
        assert dict.copy(matplotlib.rcParams) == before

    def test_import_skips_matplotlib_and_drawing_skips_pyplot(self, path):
        program = (
            "import sys, vanilla_transformer.plots as plots\n"
            "assert 'matplotlib' not in sys.modules\n"
            f"plots.plot_schedule({{'constant': [1e-3]}}, {str(path)!r})\n"
            "assert 'matplotlib.pyplot' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", program], check=True)
        assert_is_a_picture(path)

    def test_svg_is_well_formed_for_any_words(self, path):
        words = ["--", "<b>&", "\x00\x1b", "日本", "\ud800"]
        plot_attention_lines(np.eye(5)[None], words, words, path.with_suffix(".svg"), title="--> <!-- & $")
        assert ElementTree.parse(path.with_suffix(".svg")).getroot().tag == "{http://www.w3.org/2000/svg}svg"

    def test_unsupported_file_extensions_are_rejected(self, path):
        for name in ("picture.pdf", "picture", "picture.png.gz"):
            with pytest.raises(ValueError, match=r"\.png or \.svg"):
                plot_schedule({"constant": [1e-3]}, path.with_name(name))
        assert list(path.parent.iterdir()) == []

    def test_characters_without_a_font_become_whole_escapes(self):
        assert printable("dog ü") == "dog ü"
        assert printable("𓀀") in ("𓀀", "<U+13000>")
        assert fonts_for(["dog"])[:1] == matplotlib.rcParams["font.family"]
        assert printable("\ue000\ue001\ue002", longest=18) == "\\ue000\\ue001\\ue002"
        assert printable("\ue000\ue001\ue002", longest=17) == "\\ue000\\ue001…"
        assert printable("\ue000\ue001\ue002", longest=5) == "…"
        assert printable("\ue000" * 9, longest=None) == "\\ue000" * 9
        assert printable("") == ""

    def test_joiners_and_marks_stay_with_their_letters(self):
        assert printable("می‌خواهم") == "می‌خواهم"
        assert printable("\u200c") == "\\u200c"  # alone it would be invisible
        assert printable("ag̃a", longest=3) == "a…"
        assert printable("ag̃a", longest=4) == "ag̃a"

    def test_text_gets_fonts_and_warning_names_missing_scripts(self, path, panels, monkeypatch, caplog):
        fonts = {"ก": None, "ข": None, "猫": None, "क": "STIXGeneral"}
        usual = figures._font_with
        monkeypatch.setattr(figures, "_font_with", lambda c: fonts[c] if c in fonts else usual(c))
        plot_attention_maps(np.eye(3)[None], ["ก", "ขก", "<U+0041>"], ["क", "猫", "ñe’ẽ"], path, title="ก $x")
        assert_is_a_picture(path)
        assert figures._font_with("a") == "DejaVu Sans"  # the usual one comes first
        [said] = [record.getMessage() for record in caplog.records]
        assert said.startswith("No installed font has THAI letters, say ก (U+0E01); CJK letters, say 猫 (U+732B): ")
        assert matplotlib.get_cachedir() in said
        assert panels[0].figure.get_suptitle() == "<U+0E01> $x"
        labels = panels[0].get_xticklabels()
        assert [label.get_text() for label in labels] == ["क", "<U+732B>", "ñe’ẽ"]
        assert "STIXGeneral" in labels[0].get_fontfamily()

    def test_shaped_scripts_warn_on_old_matplotlib(self, path, monkeypatch, caplog):
        words = ["كيف حالك؟", "שלום", "g̃uarani"]
        for version, warned in (("3.10.9", True), ("3.11.0", False)):
            caplog.clear()
            monkeypatch.setattr(matplotlib, "__version__", version)
            plot_attention_lines(np.eye(3)[None], words, words, path)
            said = [record.getMessage() for record in caplog.records]
            assert len(said) == warned
            assert not warned or "HEBREW letters, say ו (U+05D5); ARABIC letters" in said[0]

    def test_32_lines_have_distinct_looks(self):
        assert len({tuple(look_of(place).values()) for place in range(32)}) == 32
        assert len({color_of(place) for place in range(32)}) == 32
