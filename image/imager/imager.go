// Package imager writes the manifest by which Raspberry Pi Imager offers an
// image and asks for its customisation: a file with the extension
// .rpi-imager-manifest that is opened by a double click or named by --repo.
//
// The form is Imager 2's doc/json-schema/os-list-schema.json. What the schema
// leaves open and its code wants: the boards to choose from (src/hwlistmodel.cpp
// shows none without imager.devices, and choosing one is the first step), and an
// absolute URL (src/imagewriter.cpp resolves none against the manifest's). An
// interface can be switched on if both the board and the image are said to be
// capable of it. Imager knows the init_format "rpi-preseed" since 2.0.11 and leaves
// images of one that it doesn't know out (src/oslistparser.cpp); Imager 1 writes
// its firstrun.sh instead, which the image understands, too.
package imager

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Extension is that of a manifest's file.
const Extension = ".rpi-imager-manifest"

// Image is what a manifest offers.
type Image struct {
	Name        string
	Description string
	URL         string // absolute: http, https or file
	Size        int64  // unpacked
	Sum         [32]byte
	Packed      int64 // as it is downloaded
	PackedSum   [32]byte
	Released    time.Time
	Website     string // may be empty
}

// boards are what the image boots, by the names and tags of Imager's own list. A
// tag stands for all boards of a generation: the Zero 2 W has the Pi 3's.
func boards() []board {
	of := func(name, description, tag string) board {
		return board{Name: name, Tags: []string{tag}, Description: description, Matching: "exclusive", Arch: architecture, Capable: interfaces()}
	}
	return []board{
		of("Raspberry Pi 5", "Raspberry Pi 5, 500 / 500+, and Compute Module 5", "pi5-64bit"),
		of("Raspberry Pi 4", "Raspberry Pi 4 Model B, 400, and Compute Module 4 / 4S", "pi4-64bit"),
		of("Raspberry Pi 3", "Raspberry Pi 3 Model A+ / B / B+ and Compute Module 3 / 3+", "pi3-64bit"),
		of("Raspberry Pi Zero 2 W", "Raspberry Pi Zero 2 W", "pi3-64bit"),
	}
}

// tags of the boards, each once.
func tags() []string {
	var all []string
	for _, b := range boards() {
		for _, tag := range b.Tags {
			if !slices.Contains(all, tag) {
				all = append(all, tag)
			}
		}
	}
	return all
}

const architecture = "armv8"

// interfaces are those that Imager offers to switch on.
func interfaces() []string { return []string{"i2c", "spi", "onewire", "serial"} }

type manifest struct {
	Imager struct {
		Devices []board `json:"devices"`
	} `json:"imager"`
	List []entry `json:"os_list"`
}

type board struct {
	Name        string   `json:"name"`
	Tags        []string `json:"tags"`
	Icon        string   `json:"icon"`
	Description string   `json:"description"`
	Matching    string   `json:"matching_type"`
	Arch        string   `json:"architecture"`
	Capable     []string `json:"capabilities"`
}

type entry struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Icon        string   `json:"icon"`
	URL         string   `json:"url"`
	Size        int64    `json:"extract_size"`
	Sum         string   `json:"extract_sha256"`
	Packed      int64    `json:"image_download_size"`
	PackedSum   string   `json:"image_download_sha256"`
	Released    string   `json:"release_date"`
	Format      string   `json:"init_format"`
	Website     string   `json:"website,omitempty"`
	Arch        string   `json:"architecture"`
	Capable     []string `json:"capabilities"`
	Devices     []string `json:"devices"`
}

// icon is a hand that reaches out of a frame, 40 by 40.
const icon = `<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40" viewBox="0 0 40 40"><rect width="40" height="40" rx="8" fill="#17404f"/><path d="M9 28V15h6v6h16v7z" fill="#f4c95d"/><circle cx="29" cy="13" r="4" fill="#fff"/></svg>`

// Marshal writes the manifest.
func Marshal(i Image) ([]byte, error) {
	switch {
	case i.Name == "" || i.Description == "" || i.URL == "":
		return nil, errors.New("imager manifest: a name, a description and the image's URL are needed")
	case i.Size <= 0 || i.Packed <= 0 || i.Sum == [32]byte{}:
		return nil, errors.New("imager manifest: the image's sizes and checksum are needed")
	}
	switch at, err := url.Parse(i.URL); {
	case err != nil:
		return nil, fmt.Errorf("imager manifest: the image's URL: %w", err)
	case at.Scheme == "file" && at.Host == "" && at.Path != "", (at.Scheme == "https" || at.Scheme == "http") && at.Host != "":
	default:
		return nil, fmt.Errorf("imager manifest: the image's URL, %s, isn't absolute: Imager would not find it", i.URL)
	}
	e := entry{
		Name: i.Name, Description: i.Description, URL: i.URL, Website: i.Website,
		Icon: "data:image/svg+xml," + strings.ReplaceAll(url.QueryEscape(icon), "+", "%20"),
		Size: i.Size, Sum: hex.EncodeToString(i.Sum[:]), Packed: i.Packed, PackedSum: hex.EncodeToString(i.PackedSum[:]),
		Released: i.Released.UTC().Format(time.DateOnly), Format: "rpi-preseed", Arch: architecture,
		Capable: append(interfaces(), "passwordless_sudo"), Devices: tags(),
	}
	m := manifest{List: []entry{e}}
	m.Imager.Devices = boards()
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("imager manifest: %w", err)
	}
	return append(b, '\n'), nil
}
