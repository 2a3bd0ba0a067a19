package apt

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// source is one place of the machine's own apt configuration.
type source struct{ uri, release, signedBy string }

// codename matches the suites of Debian's archives that a machine's sources
// name.
var codename = regexp.MustCompile(`^(stable|oldstable|testing|sid|unstable|bookworm|trixie|forky|duke)(-updates|-backports|-proposed-updates|-security)?/?$`)

// machineSources picks Debian's archives out of what
//
//	apt-get indextargets --no-release-info --format '$(REPO_URI)|$(RELEASE)|$(SIGNED_BY)'
//
// says of the machine's sources: the main one and that of the security team.
func machineSources(indexTargets string) (main, security []source) {
	for line := range strings.Lines(indexTargets) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 3 || !codename.MatchString(f[1]) || strings.ContainsAny(f[0], " \t[]#") {
			continue
		}
		s := source{uri: f[0], release: strings.TrimSuffix(f[1], "/")}
		if strings.HasPrefix(f[2], "/") && !strings.ContainsAny(f[2], " \t[]#") {
			s.signedBy = f[2]
		}
		if isSecurity(s.release) {
			security = append(security, s)
		} else {
			main = append(main, s)
		}
	}
	return main, security
}

func isSecurity(suite string) bool { return strings.HasSuffix(suite, "-security") }

// sources is the sources.list for what c asks.
func sources(indexTargets string, c Config, hasKeyring bool) (string, error) {
	main, security := machineSources(indexTargets)
	if len(main) == 0 {
		return "", errors.New("apt's sources on this machine name no Debian archive")
	}
	components := c.Components
	if len(components) == 0 {
		components = []string{"main"}
	}
	var list strings.Builder
	for _, suite := range c.Suites {
		places := main
		if isSecurity(suite) {
			if places = security; len(places) == 0 {
				continue // what it has comes to the main archive with the next point release
			}
		}
		// The suite itself, if the machine happens to have it; else the first.
		from := slices.MinFunc(places, func(a, b source) int {
			return cmp.Compare(rank(a.release, suite), rank(b.release, suite))
		})
		key := keyring
		if !hasKeyring {
			if key = from.signedBy; key == "" {
				return "", fmt.Errorf("%s is missing, so signatures can't be checked: install debian-archive-keyring", keyring)
			}
		}
		fmt.Fprintf(&list, "deb [arch=%s signed-by=%s] %s %s %s\n", c.Architecture, key, from.uri, suite, strings.Join(components, " "))
	}
	return list.String(), nil
}

func rank(release, suite string) int {
	if release == suite {
		return 0
	}
	return 1
}
