package render

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strconv"

	"farhand/provision/preseed"
)

// userdbDir holds records of users that systemd finds by name and by number
// (nss-systemd(8), "user record drop-ins").
const userdbDir = "/run/userdb"

// HomeDir holds the homes of people.
const HomeDir = "/data/home"

// person is a user record of who may log in, and what sshd goes by.
func (r *Result) person(in Input) {
	p := in.Settings.User
	if p != nil && (has(in.Users, p.Name) || has(in.Groups, p.Name)) {
		r.note("user", "the system has a user or group of this name; take another")
		p = nil
	}
	ssh := in.Settings.SSH
	r.SSH = ssh.Enabled && p != nil
	r.add(File{Path: Dir + "/sshd.conf", Data: sshd(ssh), Mode: 0o644})
	if p == nil {
		return
	}
	r.Person = p
	number := strconv.Itoa(PersonID)
	files := []File{
		record(p.Name+".user", 0o644, userRecord(p)),
		record(p.Name+".user-privileged", 0o600, privileged(p, ssh)),
		record(p.Name+".group", 0o644, map[string]any{"groupName": p.Name, "gid": PersonID, "disposition": "regular"}),
		{Path: userdbDir + "/" + number + ".user", Link: p.Name + ".user"},
		{Path: userdbDir + "/" + number + ".user-privileged", Link: p.Name + ".user-privileged"},
		{Path: userdbDir + "/" + number + ".group", Link: p.Name + ".group"},
	}
	for _, g := range p.Groups {
		if !has(in.Groups, g) {
			r.note("user.groups", fmt.Sprintf("this image has no group %s", g))
			continue
		}
		files = append(files, File{Path: fmt.Sprintf("%s/%s:%s.membership", userdbDir, p.Name, g), Data: []byte("{}\n"), Mode: 0o644})
	}
	r.add(files...)
}

func userRecord(p *preseed.User) map[string]any {
	return map[string]any{
		"userName": p.Name, "uid": PersonID, "gid": PersonID, "disposition": "regular",
		"homeDirectory": HomeDir + "/" + p.Name, "shell": "/bin/bash",
	}
}

// privileged is what only root may read of a user. No password is one that
// matches nothing.
func privileged(p *preseed.User, ssh preseed.SSH) map[string]any {
	hash := p.PasswordHash
	if hash == "" {
		hash = "!*"
	}
	inner := map[string]any{"hashedPassword": []string{hash}}
	if len(ssh.AuthorizedKeys) > 0 {
		inner["sshAuthorizedKeys"] = ssh.AuthorizedKeys
	}
	return map[string]any{"privileged": inner}
}

func record(name string, mode fs.FileMode, v map[string]any) File {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil { // texts and numbers alone
		panic(err)
	}
	return File{Path: userdbDir + "/" + name, Data: append(b, '\n'), Mode: mode}
}

// sshd is what the image's configuration of sshd includes (sshd_config(5)).
func sshd(ssh preseed.SSH) []byte {
	answer := "no"
	if ssh.PasswordLogin {
		answer = "yes"
	}
	return fmt.Appendf(nil, "PasswordAuthentication %s\nKbdInteractiveAuthentication no\n", answer)
}
