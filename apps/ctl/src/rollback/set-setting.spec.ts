import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setSetting } from './set-setting.js';

const folder = mkdtempSync(join(tmpdir(), 'rookery-set-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it('changes the last of two keys, which is the one that holds', () => {
  const file = join(folder, 'homeserver.yaml');
  const twice = (last: boolean): string => `a: {b: true, b: ${last}}\nx: 1\nx: 2\n`;
  writeFileSync(file, twice(false));
  expect(setSetting(file, ['a', 'b'], true)).toBe(true);
  expect(readFileSync(file, 'utf8')).toBe(twice(true));
  expect(setSetting(file, ['a', 'b'], true)).toBe(false);
});
