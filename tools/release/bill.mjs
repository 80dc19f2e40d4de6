// The bill of materials: every library of the installed tree with its version, licence and hash, as CycloneDX 1.5.
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { programIn } from './install.mjs';
import { command } from './trial.mjs';

function installedIn(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (!entry.isDirectory() || entry.name.startsWith('.')) return [];
    const path = join(folder, entry.name);
    if (entry.name.startsWith('@')) return installedIn(path);
    if (!existsSync(join(path, 'package.json'))) return [];
    const { name, version, license, licenses } = JSON.parse(readFileSync(join(path, 'package.json'), 'utf8'));
    return [{ name, version, license, licenses }, ...installedIn(join(path, 'node_modules'))];
  });
}

/** Older packages name a list of licences, in words of their own. */
function licensesOf({ license, licenses }) {
  if (typeof license === 'string') return { licenses: [{ expression: license }] };
  const named = (Array.isArray(licenses) ? licenses : []).map(({ type }) => type).filter(Boolean);
  return named.length > 0 ? { licenses: named.map((name) => ({ license: { name } })) } : {};
}

export function makeBill({ out, tree, version }) {
  const lock = JSON.parse(readFileSync(join(tree, 'node_modules', '.package-lock.json'), 'utf8'));
  const hashes = new Map(
    Object.entries(lock.packages).map(([path, { version: at, integrity }]) => [
      `${path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)}@${at}`,
      integrity,
    ]),
  );
  const component = ({ name, version: at, ...rest }) => {
    const integrity = hashes.get(`${name}@${at}`);
    const purl = `pkg:npm/${name.replace('@', '%40')}@${at}`;
    return {
      type: 'library',
      'bom-ref': purl,
      name,
      version: at,
      purl,
      ...licensesOf(rest),
      ...(integrity?.startsWith('sha512-')
        ? { hashes: [{ alg: 'SHA-512', content: Buffer.from(integrity.slice(7), 'base64').toString('hex') }] }
        : {}),
    };
  };
  const found = new Map();
  for (const one of installedIn(join(tree, 'node_modules'))) found.set(`${one.name}@${one.version}`, component(one));
  const node = command(programIn(tree, 'node'), ['--version']).trim().slice(1);
  const components = [...found.values()].sort((a, b) => (a.purl < b.purl ? -1 : 1));
  components.push({
    type: 'platform',
    'bom-ref': `pkg:generic/node@${node}`,
    name: 'node',
    version: node,
    purl: `pkg:generic/node@${node}`,
  });
  const unlicensed = components.filter(({ type, licenses }) => type === 'library' && !licenses).map(({ purl }) => purl);
  if (unlicensed.length > 0) throw new Error(`no licence is named by ${unlicensed.join(', ')}`);
  const bill = {
    bomFormat: 'CycloneDX',
    specVersion: '1.5',
    version: 1,
    metadata: {
      component: {
        type: 'application',
        name: 'rookery',
        version,
        'bom-ref': `pkg:npm/%40rookery/homeserver@${version}`,
      },
    },
    components,
  };
  writeFileSync(join(out, `rookery-${version}.cdx.json`), JSON.stringify(bill, null, 2) + '\n');
}
