package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"varve/tests/kafka"
	"varve/tests/node"
)

func cache(elem ...string) string { return kafka.Cache(elem...) }

func suiteDir(elem ...string) string {
	return filepath.Join(append([]string{node.Root(), "tests", "compat", "suite"}, elem...)...)
}

func clients3Jars() string { return cache("clients3", "lib") + "/*" }

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, tailOf(string(out), 40))
	}
	return nil
}

func installMaven(ctx context.Context, name, pom string) error {
	return kafka.Maven(ctx, name, suiteDir("java", pom))
}

// compileJava compiles our programs in a folder against the client jars that they then run with.
func compileJava(ctx context.Context, folder, name, jars string) error {
	src, err := filepath.Glob(filepath.Join(folder, "*.java"))
	if err != nil {
		return err
	}
	return kafka.Once(name+"-classes", src, func() error {
		out := cache(name, "classes")
		if err := os.MkdirAll(out, 0o755); err != nil {
			return err
		}
		return command(ctx, suiteDir("java"), "javac", append([]string{"-nowarn", "-d", out, "-cp", jars}, src...)...)
	})
}

func installJava4(ctx context.Context) error {
	if err := kafka.Install(ctx); err != nil {
		return err
	}
	return compileJava(ctx, suiteDir("java"), "kafka", kafka.Jars())
}

func installJava3(ctx context.Context) error {
	if err := installMaven(ctx, "clients3", "clients3.pom.xml"); err != nil {
		return err
	}
	return compileJava(ctx, suiteDir("java"), "clients3", clients3Jars())
}

// installFramework brings something that stands on the Java client, with the client that it wants, and compiles our program.
func installFramework(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := installMaven(ctx, name, filepath.Join(name, "pom.xml")); err != nil {
			return err
		}
		return compileJava(ctx, suiteDir("java", name), name, cache(name, "lib")+"/*")
	}
}

// installConfluentNode builds the native part of @confluentinc/kafka-javascript from the sources that its package holds: the
// prebuilt binary lies outside the registry.
func installConfluentNode(ctx context.Context) error {
	pins := suiteDir("node", "confluent", "package.json")
	return kafka.Once("confluent-node", []string{pins}, func() error {
		top := cache("confluent-node")
		if err := os.RemoveAll(top); err != nil {
			return err
		}
		if err := npmInstall(ctx, top, pins, "--ignore-scripts"); err != nil {
			return err
		}
		pkg := filepath.Join(top, "node_modules", "@confluentinc", "kafka-javascript")
		// The package's one step, with make -j, asks for a file before the rule that makes it has run: three steps then.
		for _, step := range [][]string{
			{"node", filepath.Join("util", "configure")},
			{"make", "-j2", "-C", filepath.Join("deps", "librdkafka"), "libs", "install-subdirs"},
			{"npm", "run", "configure"}, {"npm", "run", "build"},
		} {
			cmd := exec.CommandContext(ctx, step[0], step[1:]...)
			cmd.Dir, cmd.Env = pkg, append(os.Environ(), "CKJS_LINKING=dynamic")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%v: %w\n%s", step, err, tailOf(string(out), 40))
			}
		}
		return nil
	})
}

func installPython(ctx context.Context) error {
	pins := suiteDir("python", "requirements.txt")
	return kafka.Once("python", []string{pins}, func() error {
		if err := command(ctx, cache(), "python3", "-m", "venv", cache("python")); err != nil {
			return err
		}
		return command(ctx, cache(), cache("python", "bin", "pip"), "install", "-q", "--disable-pip-version-check", "-r", pins)
	})
}

func installNode(ctx context.Context) error {
	pins := suiteDir("node", "package.json")
	return kafka.Once("node", []string{pins}, func() error {
		return npmInstall(ctx, cache("node"), pins)
	})
}

func npmInstall(ctx context.Context, dir, pins string, more ...string) error {
	text, err := os.ReadFile(pins)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), text, 0o644); err != nil {
		return err
	}
	return command(ctx, dir, "npm", append([]string{"install", "--no-audit", "--no-fund", "--loglevel=error",
		"--fetch-retries=2", "--fetch-retry-maxtimeout=10000", "--fetch-timeout=120000"}, more...)...)
}

func installKcat(ctx context.Context) error {
	if _, err := exec.LookPath("kcat"); err == nil {
		return nil
	}
	return kafka.Once("kcat", nil, func() error { return command(ctx, "/", "apt-get", "install", "-y", "-qq", "kcat") })
}

func tailOf(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}
