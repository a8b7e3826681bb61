package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const maxPropertiesBytes = 1 << 20

type property struct {
	Key, Value string
	Line       int // of its first character, from 1
}

// parseProperties reads the format of java.util.Properties.load: comments (# and !), separators (=, : or white space),
// continuation lines, escapes. Text is UTF-8; if it is not valid as such it is taken as ISO-8859-1, which is what Java
// reads. A key may stand there twice; the caller decides.
func parseProperties(data []byte) ([]property, error) {
	if len(data) > maxPropertiesBytes {
		return nil, fmt.Errorf("longer than %d bytes", maxPropertiesBytes)
	}
	text := string(data)
	if !utf8.Valid(data) {
		var b strings.Builder
		for _, c := range data {
			b.WriteRune(rune(c))
		}
		text = b.String()
	}
	text = strings.TrimPrefix(text, "\ufeff")
	var props []property
	for _, l := range logicalLines(text) {
		key, value := splitProperty(l.text)
		p := property{Line: l.number}
		var err error
		if p.Key, err = unescape(key); err == nil {
			p.Value, err = unescape(value)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", l.number, err)
		}
		props = append(props, p)
	}
	return props, nil
}

const propertySpace = " \t\f"

type logicalLine struct {
	text   string // escapes not yet resolved, leading white space gone
	number int
}

// logicalLines joins continued lines and leaves out comments and blank lines. A comment cannot be continued, and a
// comment sign on a line that continues another one is text.
func logicalLines(text string) []logicalLine {
	var lines []logicalLine
	continued := false
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	for i, raw := range strings.Split(text, "\n") {
		raw = strings.TrimLeft(raw, propertySpace)
		if !continued && (raw == "" || raw[0] == '#' || raw[0] == '!') {
			continue
		}
		more := trailingBackslashes(raw)%2 == 1
		raw = raw[:len(raw)-b2i(more)]
		switch {
		case continued:
			lines[len(lines)-1].text += raw
		case raw == "": // a lone backslash: the next line begins afresh
			continue
		default:
			lines = append(lines, logicalLine{raw, i + 1})
		}
		continued = more
	}
	return lines
}

func trailingBackslashes(s string) int {
	return len(s) - len(strings.TrimRight(s, `\`))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// splitProperty cuts at the first separator that is not escaped: white space, then at most one = or :, then white space.
func splitProperty(line string) (key, value string) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			continue
		}
		if strings.IndexByte(propertySpace+"=:", line[i]) >= 0 {
			end = i
			break
		}
	}
	key, rest := line[:end], strings.TrimLeft(line[end:], propertySpace)
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], propertySpace)
	}
	return key, rest
}

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var units []uint16 // escapes are UTF-16 units: two of them may make one character
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			units = flushUnits(&b, units)
			if s[i] != '\\' {
				b.WriteByte(s[i])
			}
			continue
		}
		i++
		if s[i] == 'u' {
			unit, err := hexUnit(s[i+1:])
			if err != nil {
				return "", err
			}
			units = append(units, unit)
			i += 4
			continue
		}
		units = flushUnits(&b, units)
		b.WriteByte(escaped(s[i]))
	}
	flushUnits(&b, units)
	return b.String(), nil
}

func escaped(c byte) byte {
	switch c {
	case 't':
		return '\t'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 'f':
		return '\f'
	}
	return c
}

var errBadUnicode = errors.New(`\u must be followed by four hexadecimal digits`)

func hexUnit(s string) (uint16, error) {
	if len(s) < 4 {
		return 0, errBadUnicode
	}
	n, err := strconv.ParseUint(s[:4], 16, 16)
	if err != nil {
		return 0, errBadUnicode
	}
	return uint16(n), nil
}

func flushUnits(b *strings.Builder, units []uint16) []uint16 {
	for _, r := range utf16.Decode(units) {
		b.WriteRune(r)
	}
	return units[:0]
}
