package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// group is a set of bars that are compared with each other; each group has its own scale, so that what is seen is the ratio.
type group struct {
	label string
	bars  []bar
}

type bar struct {
	side  string
	value float64
	limit float64 // a mark in the group's own unit; 0 is none
}

const (
	plotWidth   = 990
	plotLabel   = 360 // where bars begin
	plotBars    = 480 // the longest bar
	plotBar     = 13
	plotGap     = 9
	plotHeading = 58
)

var colours = map[string]string{varve: "#0b7285", against: "#1098ad", kafkaSide: "#e8590c", kafkaLean: "#f08c00", bare: "#868e96"}

// plot draws horizontal bars as SVG.
func plot(title, note string, groups []group) string {
	var b strings.Builder
	y := plotHeading
	for _, g := range groups {
		top := 0.0
		for _, x := range g.bars {
			top = max(top, x.value, x.limit)
		}
		text(&b, plotLabel-8, y+len(g.bars)*plotBar/2+4, "end", "#212529", g.label)
		for _, x := range g.bars {
			length := 0.0
			if top > 0 {
				length = x.value / top * plotBars
			}
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", plotLabel, y, max(length, 1), plotBar-2, colours[x.side])
			if x.limit > 0 {
				at := plotLabel + x.limit/top*plotBars
				fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#c92a2a" stroke-width="2"/>`+"\n", at, y-2, at, y+plotBar)
			}
			text(&b, plotLabel+int(max(length, x.limit/max(top, 1e-12)*plotBars))+6, y+plotBar-3, "start", "#495057", number(x.value)+" "+x.side)
			y += plotBar
		}
		y += plotGap
	}
	var head strings.Builder
	fmt.Fprintf(&head, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n",
		plotWidth, y+6, plotWidth, y+6)
	fmt.Fprintf(&head, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", plotWidth, y+6)
	fmt.Fprintf(&head, `<text x="12" y="22" font-size="15" font-weight="bold" fill="#212529">%s</text>`+"\n", escape(title))
	text(&head, 12, 40, "start", "#495057", note)
	return head.String() + b.String() + "</svg>\n"
}

func text(b *strings.Builder, x, y int, anchor, fill, s string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, fill, escape(s))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
	return b.String()
}
