// The notes of a version: its chapter of the changelog.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../lib.mjs';

/** @throws Error when the changelog says nothing about the version */
export function notesOf(version) {
  const chapters = readFileSync(join(root, 'CHANGELOG.md'), 'utf8').split(/^(?=## )/m);
  const chapter = chapters.find((text) => new RegExp(`^## v?${version.replaceAll('.', '\\.')}\\b`).test(text));
  if (chapter === undefined) throw new Error(`CHANGELOG.md has no chapter for ${version}`);
  return chapter;
}
