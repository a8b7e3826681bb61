package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

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
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, tailOf(string(out), 40))
	}
	return nil
}

func installMaven(ctx context.Context, name, pom string) error {
	return kafka.Maven(ctx, name, suiteDir("java", pom))
}

// compileJava compiles our programs against the client jars that they then run with.
func compileJava(ctx context.Context, name, jars string) error {
	src, err := filepath.Glob(suiteDir("java", "*.java"))
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
	return compileJava(ctx, "kafka", kafka.Jars())
}

func installJava3(ctx context.Context) error {
	if err := installMaven(ctx, "clients3", "clients3.pom.xml"); err != nil {
		return err
	}
	return compileJava(ctx, "clients3", clients3Jars())
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
		if err := os.MkdirAll(cache("node"), 0o755); err != nil {
			return err
		}
		text, err := os.ReadFile(pins)
		if err != nil {
			return err
		}
		if err := os.WriteFile(cache("node", "package.json"), text, 0o644); err != nil {
			return err
		}
		return command(ctx, cache("node"), "npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
	})
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
