package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletionKnowsTheTree: each script names every command and every flag.
func TestCompletionKnowsTheTree(t *testing.T) {
	all := completions(rootCommand(), "varve")
	if len(all) < 20 {
		t.Fatalf("%d commands", len(all))
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := ok(t, "completion", shell)
		for _, c := range all {
			if !strings.Contains(script, c.path) {
				t.Errorf("%s does not know %s", shell, c.path)
			}
			for _, f := range c.flags {
				name := "--" + f.Name
				if shell == "fish" {
					name = "-l " + f.Name
				}
				if !strings.Contains(script, name) {
					t.Errorf("%s does not know %s %s", shell, c.path, name)
				}
			}
		}
	}
	if code, _, errs := shell(t, "completion", "tcsh"); code != exitUsage || !strings.Contains(errs, "bash, zsh and fish") {
		t.Error(code, errs)
	}
}

// TestCompletionInBash lets a real shell complete.
func TestCompletionInBash(t *testing.T) {
	script := filepath.Join(t.TempDir(), "varve.bash")
	if err := os.WriteFile(script, []byte(ok(t, "completion", "bash")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ line, want string }{
		{"varve to", "topic"},
		{"varve topic al", "alter"},
		{"varve topic create x --part", "--partitions"},
		{"varve topic create x --partitions ", ""},
		{"varve group describe --format ", "text json"},
		{"varve consume x --format j", "json"},
		{"varve consume x --isolation-level read_c", "read_committed"},
		{"varve completion z", "zsh"},
		{"varve nonsense ", ""},
	} {
		words := strings.Split(tc.line, " ")
		cmd := exec.Command("bash", "-c", `source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _varve; echo "${COMPREPLY[*]}"`, script)
		cmd.Args = append(cmd.Args, words...)
		out, err := cmd.CombinedOutput()
		got := strings.TrimSpace(string(out))
		if err != nil || got != tc.want && !(tc.want == "" && strings.Contains(got, "topic")) {
			t.Errorf("%q: %q, want %q; %v", tc.line, got, tc.want, err)
		}
	}
}
