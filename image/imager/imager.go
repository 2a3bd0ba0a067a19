// Package imager writes the manifest by which Raspberry Pi Imager offers an
// image and asks for its customisation: a file with the extension
// .rpi-imager-manifest that is opened by a double click or named by --repo.
//
// The form is Imager 2's doc/json-schema/os-list-schema.json. Imager 1 knows no
// init_format "rpi-preseed" and writes its firstrun.sh instead, which the image
// understands, too.
package imager

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Extension is that of a manifest's file.
const Extension = ".rpi-imager-manifest"

// Image is what a manifest offers.
type Image struct {
	Name        string
	Description string
	URL         string // https or file, or a name relative to where the manifest is served
	Size        int64  // unpacked
	Sum         [32]byte
	Packed      int64 // as it is downloaded
	PackedSum   [32]byte
	Released    time.Time
	Website     string // may be empty
}

// Devices are Imager's tags of the boards that the image boots.
func Devices() []string { return []string{"pi3-64bit", "pi4-64bit", "pi5-64bit"} }

type manifest struct {
	List []entry `json:"os_list"`
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
	e := entry{
		Name: i.Name, Description: i.Description, URL: i.URL, Website: i.Website,
		Icon: "data:image/svg+xml," + strings.ReplaceAll(url.QueryEscape(icon), "+", "%20"),
		Size: i.Size, Sum: hex.EncodeToString(i.Sum[:]), Packed: i.Packed, PackedSum: hex.EncodeToString(i.PackedSum[:]),
		Released: i.Released.UTC().Format(time.DateOnly), Format: "rpi-preseed", Arch: "armv8",
		Capable: []string{"i2c", "spi", "onewire", "serial", "passwordless_sudo"}, Devices: Devices(),
	}
	b, err := json.MarshalIndent(manifest{[]entry{e}}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("imager manifest: %w", err)
	}
	return append(b, '\n'), nil
}
