package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"varve/broker/config"
)

// command is one word of the command line. It has either sub commands or run.
type command struct {
	name     string
	args     string // what follows the name in the usage line
	summary  string
	notes    []string // lines of two columns, apart by a tab, that explain what flags cannot
	examples []string
	run      func(c *call) int
	sub      []*command
}

// call is one execution of a command.
type call struct {
	ctx            context.Context
	cmd            *command
	path           string // "varve topic create"
	args           []string
	env            []string
	stdin          io.Reader
	stdout, stderr io.Writer
	flags          *flag.FlagSet
}

// dispatch walks down the command words and runs what they name.
func (c *call) dispatch() int {
	if c.cmd.run != nil {
		c.flags = flag.NewFlagSet(c.path, flag.ContinueOnError)
		c.flags.SetOutput(io.Discard)
		return c.cmd.run(c)
	}
	if len(c.args) == 0 {
		c.help(c.stderr)
		return exitUsage
	}
	word := c.args[0]
	switch word {
	case "help", "-h", "-help", "--help":
		return c.helpFor(c.args[1:])
	case "-version", "--version":
		word = "version"
	}
	var names []string
	for _, sub := range c.cmd.sub {
		if sub.name == word {
			return c.down(sub).dispatch()
		}
		names = append(names, sub.name)
	}
	hint := "commands: " + strings.Join(names, ", ")
	if near, ok := config.Nearest(word, names); ok {
		hint = "did you mean " + near + "?"
	}
	fmt.Fprintf(c.stderr, "%s: there is no command %q; %s\n", c.path, word, hint)
	return exitUsage
}

func (c *call) down(sub *command) *call {
	next := *c
	next.cmd, next.path, next.args = sub, c.path+" "+sub.name, c.args[1:]
	return &next
}

// helpFor shows the help of the command that the words name.
func (c *call) helpFor(words []string) int {
	if len(words) == 0 {
		c.help(c.stdout)
		return exitOK
	}
	c.args = words
	for _, sub := range c.cmd.sub {
		if sub.name != words[0] {
			continue
		}
		next := c.down(sub)
		if sub.run == nil {
			return next.helpFor(words[1:])
		}
		next.args = []string{"--help"}
		return next.dispatch()
	}
	return c.dispatch()
}

func (c *call) help(w io.Writer) {
	if c.cmd.run != nil {
		fmt.Fprintf(w, "Usage: %s %s\n\n%s\n", c.path, c.cmd.args, wrap(c.cmd.summary))
		c.helpNotes(w)
		c.helpFlags(w)
	} else {
		fmt.Fprintf(w, "Usage: %s COMMAND\n\n%s\n\nCommands:\n", c.path, wrap(c.cmd.summary))
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, sub := range c.cmd.sub {
			fmt.Fprintf(tw, "  %s\t%s\n", sub.name, firstSentence(sub.summary))
		}
		_ = tw.Flush()
		fmt.Fprintf(w, "\n%s COMMAND --help says more about one.\n", c.path)
	}
	if len(c.cmd.examples) > 0 {
		fmt.Fprintf(w, "\nExamples:\n  %s\n", strings.Join(c.cmd.examples, "\n  "))
	}
}

func (c *call) helpNotes(w io.Writer) {
	if len(c.cmd.notes) == 0 {
		return
	}
	fmt.Fprint(w, "\nFormats:\n")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, note := range c.cmd.notes {
		fmt.Fprintf(tw, "  %s\n", note)
	}
	_ = tw.Flush()
}

// wrap breaks text into lines of at most 100 characters where words allow it.
func wrap(text string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > 100:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

func firstSentence(s string) string {
	if i := strings.Index(s, ". "); i >= 0 {
		return s[:i+1]
	}
	return s
}

func (c *call) helpFlags(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	any := false
	c.flags.VisitAll(func(f *flag.Flag) {
		if !any {
			fmt.Fprint(w, "\nFlags:\n")
			any = true
		}
		value, usage := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" {
			usage += " (" + f.DefValue + ")"
		}
		fmt.Fprintf(tw, "  --%s\t%s\n", strings.TrimSpace(f.Name+" "+value), usage)
	})
	_ = tw.Flush()
}

// parse reads flags and arguments in any order. done tells that code is the exit code already: help was asked for, or the
// line is wrong. most is -1 for any number.
func (c *call) parse(least, most int) (args []string, code int, done bool) {
	rest := c.args
	for {
		if err := c.flags.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				c.help(c.stdout)
				return nil, exitOK, true
			}
			return nil, c.wrong("%v%s", err, c.nearestFlag(err)), true
		}
		rest = c.flags.Args()
		if len(rest) == 0 {
			break
		}
		args, rest = append(args, rest[0]), rest[1:]
	}
	if len(args) < least {
		return nil, c.wrong("something is missing: %s", c.cmd.args), true
	}
	if most >= 0 && len(args) > most {
		return nil, c.wrong("%q is too much", args[most]), true
	}
	return args, exitOK, false
}

func (c *call) nearestFlag(err error) string {
	_, name, found := strings.Cut(err.Error(), "not defined: -")
	if !found {
		return ""
	}
	var names []string
	c.flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	if near, ok := config.Nearest(name, names); ok {
		return "; did you mean --" + near + "?"
	}
	return ""
}

// wrong reports a bad command line.
func (c *call) wrong(format string, args ...any) int {
	fmt.Fprintf(c.stderr, "%s: %s\nUsage: %s %s; %s --help says more.\n", c.path, fmt.Sprintf(format, args...), c.path, c.cmd.args, c.path)
	return exitUsage
}

// failed reports what went wrong in doing it.
func (c *call) failed(format string, args ...any) int {
	fmt.Fprintf(c.stderr, "%s: %s\n", c.path, fmt.Sprintf(format, args...))
	return exitRuntime
}

// repeated collects the values of a flag that may be given several times.
type repeated []string

func (r *repeated) String() string { return strings.Join(*r, " ") }

// Set implements flag.Value.
func (r *repeated) Set(s string) error {
	*r = append(*r, s)
	return nil
}

// format is the --format flag.
func (c *call) format() *string {
	return c.flags.String("format", "text", "output `FORMAT`: text for people, json for programs")
}

func (c *call) badFormat(f string) bool { return f != "text" && f != "json" }
