package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

func completionCommand() *command {
	return &command{
		name:    "completion",
		args:    "bash|zsh|fish",
		summary: "Print a script that lets the shell complete commands and flags of varve. It is made from the commands themselves, so print it anew after an upgrade.",
		examples: []string{
			"source <(varve completion bash)",
			"varve completion bash > /etc/bash_completion.d/varve",
			"source <(varve completion zsh)",
			"varve completion fish > ~/.config/fish/completions/varve.fish",
		},
		run: runCompletion,
	}
}

func runCompletion(c *call) int {
	args, code, done := c.parse(1, 1)
	if done {
		return code
	}
	scripts := map[string]func(io.Writer, []completed){"bash": completeBash, "zsh": completeZsh, "fish": completeFish}
	script, known := scripts[args[0]]
	if !known {
		return c.wrong("there is no completion for %q: the shells are bash, zsh and fish", args[0])
	}
	script(c.stdout, completions(rootCommand(), "varve"))
	return exitOK
}

// completed is what can follow a command path.
type completed struct {
	path  string // "varve topic create"
	sub   []*command
	flags []*flag.Flag
}

// completions walks the tree. A leaf declares its flags when it runs, so it is run for its help.
func completions(cmd *command, path string) []completed {
	if cmd.run != nil {
		c := &call{cmd: cmd, path: path, args: []string{"--help"}, stdout: io.Discard, stderr: io.Discard, stdin: strings.NewReader("")}
		c.dispatch()
		leaf := completed{path: path}
		c.flags.VisitAll(func(f *flag.Flag) { leaf.flags = append(leaf.flags, f) })
		return []completed{leaf}
	}
	all := []completed{{path: path, sub: cmd.sub}}
	for _, sub := range cmd.sub {
		all = append(all, completions(sub, path+" "+sub.name)...)
	}
	return all
}

// words are the commands or flags that can follow.
func (c completed) words() []string {
	var out []string
	for _, sub := range c.sub {
		out = append(out, sub.name)
	}
	for _, f := range c.flags {
		out = append(out, "--"+f.Name)
	}
	if c.path == "varve completion" {
		out = append(out, "bash", "zsh", "fish")
	}
	return append(out, "--help")
}

// choices are the values of those flags that have few.
func choices(flagName, path string) []string {
	records := path == "varve produce" || path == "varve consume"
	switch flagName {
	case "format":
		if records {
			return recordFormats
		}
		return []string{"text", "json"}
	case "compression-codec", "compression":
		return []string{"none", "gzip", "snappy", "lz4", "zstd"}
	case "acks", "request-required-acks":
		return []string{"all", "1", "0"}
	case "isolation-level":
		return []string{"read_uncommitted", "read_committed"}
	case "report":
		return []string{"text", "json", "none"}
	case "log-level":
		return []string{"DEBUG", "INFO", "WARN", "ERROR"}
	}
	return nil
}

// takesFile tells that a flag's value is a file or folder.
func takesFile(f *flag.Flag) bool {
	value, _ := flag.UnquoteUsage(f)
	return value == "FILE" || value == "DIR"
}

const bashHead = `# Completion of varve for bash, made by: varve completion bash
_varve() {
  local cur prev path word
  cur=${COMP_WORDS[COMP_CWORD]}
  prev=${COMP_WORDS[COMP_CWORD-1]}
  path=varve
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$path $word" in
`

const bashMiddle = `        path="$path $word" ;;
    esac
  done
  COMPREPLY=()
  case "$path $prev" in
`

func completeBash(w io.Writer, all []completed) {
	fmt.Fprint(w, bashHead)
	var paths []string
	for _, c := range all[1:] {
		paths = append(paths, quote(c.path))
	}
	fmt.Fprintf(w, "      %s)\n", strings.Join(paths, "|"))
	fmt.Fprint(w, bashMiddle)
	for _, c := range all {
		for _, f := range c.flags {
			at := quote(c.path + " --" + f.Name)
			switch {
			case takesFile(f):
				fmt.Fprintf(w, "    %s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", at)
			case len(choices(f.Name, c.path)) > 0:
				fmt.Fprintf(w, "    %s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", at, strings.Join(choices(f.Name, c.path), " "))
			case !boolean(f):
				fmt.Fprintf(w, "    %s) return ;;\n", at)
			}
		}
	}
	fmt.Fprint(w, "  esac\n  case \"$path\" in\n")
	for _, c := range all {
		fmt.Fprintf(w, "    %s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n", quote(c.path), strings.Join(c.words(), " "))
	}
	fmt.Fprint(w, "  esac\n}\ncomplete -F _varve varve\n")
}

func boolean(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// quote makes one word of a text for any of the shells.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// plain is a description without what flag help marks.
func plain(f *flag.Flag) string {
	_, usage := flag.UnquoteUsage(f)
	return usage
}

const zshHead = `#compdef varve
# Completion of varve for zsh, made by: varve completion zsh
_varve() {
  local path=varve word prev=${words[CURRENT-1]}
  for word in ${words[2,CURRENT-1]}; do
    case "$path $word" in
`

func completeZsh(w io.Writer, all []completed) {
	// In zsh $path is the search path: the same walk under another name.
	fmt.Fprint(w, strings.ReplaceAll(zshHead, "path", "at"))
	var paths []string
	for _, c := range all[1:] {
		paths = append(paths, quote(c.path))
	}
	fmt.Fprintf(w, "      %s) at=\"$at $word\" ;;\n    esac\n  done\n  local -a found\n  case \"$at $prev\" in\n", strings.Join(paths, "|"))
	for _, c := range all {
		for _, f := range c.flags {
			at := quote(c.path + " --" + f.Name)
			switch {
			case takesFile(f):
				fmt.Fprintf(w, "    %s) _files; return ;;\n", at)
			case len(choices(f.Name, c.path)) > 0:
				fmt.Fprintf(w, "    %s) compadd -- %s; return ;;\n", at, strings.Join(choices(f.Name, c.path), " "))
			case !boolean(f):
				fmt.Fprintf(w, "    %s) return ;;\n", at)
			}
		}
	}
	fmt.Fprint(w, "  esac\n  case \"$at\" in\n")
	for _, c := range all {
		fmt.Fprintf(w, "    %s) found=(\n", quote(c.path))
		for _, line := range c.described() {
			fmt.Fprintf(w, "      %s\n", quote(strings.ReplaceAll(line[0], ":", `\:`)+":"+line[1]))
		}
		fmt.Fprint(w, "    ) ;;\n")
	}
	fmt.Fprint(w, "  esac\n  _describe varve found\n}\ncompdef _varve varve\n")
}

// described are words with what they mean.
func (c completed) described() [][2]string {
	var out [][2]string
	for _, sub := range c.sub {
		out = append(out, [2]string{sub.name, firstSentence(sub.summary)})
	}
	for _, f := range c.flags {
		out = append(out, [2]string{"--" + f.Name, plain(f)})
	}
	if c.path == "varve completion" {
		for _, shell := range []string{"bash", "zsh", "fish"} {
			out = append(out, [2]string{shell, "the script for " + shell})
		}
	}
	return append(out, [2]string{"--help", "say more"})
}

const fishHead = `# Completion of varve for fish, made by: varve completion fish
function __varve_at
    set -l at varve
    for word in (commandline -opc)[2..]
        if contains -- "$at $word" $__varve_paths
            set at "$at $word"
        end
    end
    test "$at" = "$argv"
end
complete -c varve -f
`

func completeFish(w io.Writer, all []completed) {
	var paths []string
	for _, c := range all[1:] {
		paths = append(paths, quote(c.path))
	}
	fmt.Fprintf(w, "set -g __varve_paths %s\n%s", strings.Join(paths, " "), fishHead)
	for _, c := range all {
		at := "complete -c varve -n " + quote("__varve_at "+c.path)
		for _, line := range c.described() {
			name, isFlag := strings.CutPrefix(line[0], "--")
			if !isFlag {
				fmt.Fprintf(w, "%s -a %s -d %s\n", at, line[0], quote(line[1]))
				continue
			}
			value := ""
			if i := slices.IndexFunc(c.flags, func(f *flag.Flag) bool { return f.Name == name }); i >= 0 {
				switch f := c.flags[i]; {
				case takesFile(f):
					value = " -r -F"
				case len(choices(name, c.path)) > 0:
					value = " -x -a " + quote(strings.Join(choices(name, c.path), " "))
				case !boolean(f):
					value = " -x"
				}
			}
			fmt.Fprintf(w, "%s -l %s%s -d %s\n", at, name, value, quote(line[1]))
		}
	}
}
