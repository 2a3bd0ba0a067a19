package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	built := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123"}
	dirty := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, c := range []struct {
		stamp string
		info  *debug.BuildInfo
		want  string
	}{
		{"v1.2.3", built("v9.9.9"), "1.2.3"},
		{"1.2.3-4-gabcdef-dirty", nil, "1.2.3-4-gabcdef-dirty"},
		{"", built("v0.3.0"), "0.3.0"},
		{"", built("(devel)", commit), "0.0.0-dev+0123456789ab"},
		{"", built("", commit, dirty), "0.0.0-dev+0123456789ab.dirty"},
		{"", built("(devel)"), unknown},
		{"", nil, unknown},
		{"spaces are refused", built("v0.3.0"), "0.3.0"},
		{strings.Repeat("1", 65), nil, unknown},
		{"1.0\n", nil, unknown},
	} {
		if got := choose(c.stamp, c.info); got != c.want {
			t.Errorf("choose(%q, %+v) = %q, want %q", c.stamp, c.info, got, c.want)
		}
	}
	if got := String(); !valid.MatchString(got) {
		t.Errorf("String() = %q", got)
	}
}
