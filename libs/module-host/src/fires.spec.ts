import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type CallbackInfo, callbackTable } from '@rookery/module-api';

const root = fileURLToPath(new URL('../../../', import.meta.url));

function* sources(folder: string): Iterable<string> {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* sources(path);
    else if (/\.ts$/.test(entry.name) && !/\.spec\.ts$/.test(entry.name)) yield path;
  }
}

/** Callbacks that some part of the server asks the dispatcher for. */
function called(): Set<string> {
  const names = new Set<string>();
  for (const group of ['libs', 'apps']) {
    for (const part of readdirSync(join(root, group))) {
      if (['module-api', 'module-host', 'testing'].includes(part)) continue;
      for (const file of sources(join(root, group, part, 'src'))) {
        const text = readFileSync(file, 'utf8');
        for (const [, name] of text.matchAll(/\.(?:gate|provide|notify|transform)\(\s*'(\w+)'/g)) names.add(name ?? '');
        for (const [, name] of text.matchAll(
          /\bmodules\.(checkAuth|check3pidAuth|addFieldToUnsigned|getUsersForStates|getInterestedUsers)\(/g,
        )) {
          names.add(name === 'checkAuth' ? 'authCheckers' : (name ?? ''));
        }
      }
    }
  }
  // The dispatcher tells those who know it by the old name, too.
  if (names.has('onAddUserThirdPartyIdentifier')) names.add('onThreepidBind');
  return names;
}

it('the table says truly which callbacks the server calls', () => {
  const rows = Object.entries(callbackTable) as [string, CallbackInfo][];
  const claimed = rows.filter(([, { fires }]) => fires).map(([name]) => name);
  // Set `fires` in libs/module-api/src/callbacks/table.ts, then run: node tools/api-report.mjs
  expect(claimed.sort()).toEqual([...called()].sort());
});
