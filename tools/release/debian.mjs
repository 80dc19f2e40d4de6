// The Debian package: the tree below /usr/lib/rookery, a unit with hardening, a user of its own, settings that removal leaves.
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { root } from '../lib.mjs';
import { command, tryServer, writeModule } from './trial.mjs';

const parts = fileURLToPath(new URL('debian/', import.meta.url));
const architectures = { x64: 'amd64', arm64: 'arm64' };

export async function makeDebianPackage({ out, work, tree, version, inRoot }) {
  const architecture = architectures[process.arch];
  if (process.platform !== 'linux' || architecture === undefined)
    throw new Error('Debian packages are made on Linux, x64 or arm64');
  const at = join(work, 'debian');
  rmSync(at, { recursive: true, force: true });
  const place = (path) => {
    mkdirSync(join(at, path, '..'), { recursive: true });
    return join(at, path);
  };
  cpSync(tree, place('usr/lib/rookery'), { recursive: true, verbatimSymlinks: true });
  for (const name of ['rookery', 'rookery-homeserver', 'synctl'])
    symlinkSync(`../lib/rookery/bin/${name}`, place(`usr/bin/${name}`));
  copyFileSync(join(parts, 'rookery.service'), place('usr/lib/systemd/system/rookery.service'));
  copyFileSync(join(parts, 'rookery.default'), place('etc/default/rookery'));
  copyFileSync(join(root, 'LICENSE'), place('usr/share/doc/rookery/copyright'));
  copyFileSync(join(root, 'CHANGELOG.md'), place('usr/share/doc/rookery/CHANGELOG.md'));
  cpSync(join(root, 'docs', 'operators'), place('usr/share/doc/rookery/operators'), { recursive: true });
  const sizeKib = Number(command('du', ['-sk', at]).split('\t')[0]);
  writeFileSync(
    place('DEBIAN/control'),
    `Package: rookery
Version: ${version}
Architecture: ${architecture}
Maintainer: Rookery
Section: net
Priority: optional
Installed-Size: ${sizeKib}
Depends: adduser, debconf (>= 0.5) | debconf-2.0, libc6 (>= 2.28), libstdc++6
Suggests: postgresql, nginx
Description: fast Matrix homeserver that hosts typed modules
 Rookery serves Matrix clients and federates with other homeservers. Modules in
 JavaScript or TypeScript decide about spam, accounts, media and more. The
 package carries the Node.js that it was tested on.
`,
  );
  writeFileSync(place('DEBIAN/conffiles'), '/etc/default/rookery\n');
  for (const name of ['config', 'templates', 'postinst', 'prerm', 'postrm']) {
    copyFileSync(join(parts, name), place(`DEBIAN/${name}`));
    chmodSync(join(at, 'DEBIAN', name), name === 'templates' ? 0o644 : 0o755);
  }
  const file = join(out, `rookery_${version}_${architecture}.deb`);
  command('dpkg-deb', ['--build', '--root-owner-group', '-Zxz', '-z1', at, file]);
  const unpacked = join(work, 'deb-unpacked');
  command('dpkg-deb', ['-x', file, unpacked]);
  const env = { ...process.env, PATH: '/usr/bin:/bin' };
  await tryServer(
    [join(unpacked, 'usr/lib/rookery/bin/rookery-homeserver')],
    [join(unpacked, 'usr/lib/rookery/bin/rookery')],
    env,
  );
  if (inRoot) tryInRoot(file, join(work, 'debian-root'));
}

/** Installs, runs, upgrades and removes the package in the root of a fresh Debian. */
function tryInRoot(file, at) {
  const stable = 'bookworm';
  if (!existsSync(join(at, 'etc', 'debian_version'))) {
    command('debootstrap', ['--variant=minbase', '--include=adduser,debconf,libstdc++6', stable, at]);
  }
  copyFileSync(file, join(at, 'rookery.deb'));
  const inside = (script) =>
    command('chroot', [at, '/bin/sh', '-ec', script], {
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', DEBIAN_FRONTEND: 'noninteractive' },
    });
  inside('echo "rookery rookery/server-name string no name" | debconf-set-selections; dpkg -i /rookery.deb');
  if (existsSync(join(at, 'etc/rookery/homeserver.yaml'))) throw new Error('settings were written for no name');
  inside('echo "rookery rookery/server-name string deb.test" | debconf-set-selections; dpkg-reconfigure rookery');
  const settings = readFileSync(join(at, 'etc/rookery/homeserver.yaml'), 'utf8');
  if (!/server_name: .?deb\.test/.test(settings)) throw new Error('the settings do not name the server');
  const modes = inside('stat -c "%a %U:%G" /etc/rookery/homeserver.yaml /var/lib/rookery').trim().split('\n');
  if (modes.join() !== '640 root:rookery,750 rookery:rookery') throw new Error(`wrong modes: ${modes.join(', ')}`);
  const served = inside(`
    cd /var/lib/rookery
    setpriv --reuid=rookery --regid=rookery --init-groups rookery-homeserver --config /etc/rookery/homeserver.yaml > /tmp/log 2>&1 &
    pid=$!
    for i in $(seq 600); do
      if grep -q 8008 /tmp/log; then break; fi
      sleep 0.2
    done
    cat /tmp/log
    rookery register-user -c /etc/rookery/homeserver.yaml -u first -p "a long password" -a http://127.0.0.1:8008
    kill $pid
    wait $pid
    cat /tmp/log`);
  if (!served.includes('8008')) throw new Error(`the installed server did not start:\n${served}`);
  // The root has no npm but the one that comes along.
  writeModule(join(at, 'tmp', 'trial'));
  for (const what of ['add /tmp/trial', 'remove trial-module'])
    inside(`cd /; rookery module ${what} -c /etc/rookery/homeserver.yaml`);
  inside(
    'dpkg -i /rookery.deb; dpkg -r rookery; test -e /etc/rookery/homeserver.yaml; test -e /var/lib/rookery; dpkg -P rookery; test -n "$(ls /var/lib/rookery)"; test ! -e /usr/lib/rookery',
  );
  rmSync(join(at, 'rookery.deb'));
}
