import type { Fields } from './kinds.js';
import type { Setting } from './setting.js';
import { chapters, rowOf, type SettingName, settingNames } from './table.js';
import { withoutEffect } from './without-effect.js';

/** `30m`, `50M`, `true`, `[]`: a default as one writes it in the file. */
export function writtenDefault(row: Setting): string | undefined {
  const value = row.default;
  if (value === undefined) return undefined;
  if (typeof value === 'number' && row.kind.label === 'duration') return writtenDuration(value);
  if (typeof value === 'number' && row.kind.label === 'size') return writtenSize(value);
  return JSON.stringify(value);
}

function writtenDuration(ms: number): string {
  for (const [unit, length] of Object.entries({ w: 604_800_000, d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000 })) {
    if (ms > 0 && ms % length === 0) return `${ms / length}${unit}`;
  }
  return String(ms);
}

function writtenSize(bytes: number): string {
  for (const [unit, length] of Object.entries({ G: 1024 ** 3, M: 1024 ** 2, K: 1024 })) {
    if (bytes > 0 && bytes % length === 0) return `${bytes / length}${unit}`;
  }
  return String(bytes);
}

/** `docs/operators/configuration.md`: every setting, from the table. */
export function configurationReference(): string {
  const out = [
    '# Settings',
    '',
    '<!-- Written by `npm run docs` from libs/platform/src/config/settings. -->',
    '',
    'The settings stand in a YAML file, `homeserver.yaml`. Several files and folders of `*.yaml` files may be given; a later',
    'top-level key replaces an earlier one whole. A name with dots is a key in a section: `email.smtp_host` is written',
    '',
    '```yaml',
    'email:',
    '  smtp_host: mail.example.org',
    '```',
    '',
    '- A **duration** is a number of milliseconds, or text with a unit: `30s`, `5m`, `1h`, `7d`, `4w`, `1y`.',
    '- A **size** is a number of bytes, or text with a unit of 1024: `500K`, `50M`, `1G`, `1T`.',
    '- A relative **path** starts at the folder of the first settings file.',
    '- A **secret** can lie in a file of its own, named by the setting ending in `_path`; giving both is an error.',
    "- An empty text (`''`) counts as not set, where a setting has no default and takes no empty text.",
    '',
    'A wrong value stops the start; the message names file, line, setting and what was expected. An unknown name is warned',
    'about with the nearest known one. `rookery config check FILE...` does both without starting. Settings marked ↻ are read',
    'again on SIGHUP, the others at the next start. "Since" is the release of the servers of this family that brought a setting.',
    '',
  ];
  for (const [title, rows] of Object.entries(chapters)) {
    const names = Object.keys(rows) as SettingName[];
    const old = names.filter((name) => isOld(rowOf(name)));
    out.push(`## ${title}`, '');
    for (const name of names) if (!old.includes(name)) out.push(...entry(name));
    if (old.length > 0) out.push('', `### ${title}: names of the past`, '');
    for (const name of old) out.push(`- \`${name}\`: ${oldText(rowOf(name))}`);
    out.push('');
  }
  const idle = settingNames.filter((name) => withoutEffect.has(name));
  if (idle.length > 0) {
    out.push(
      '## Without effect so far',
      '',
      'These are understood and checked, but nothing uses them yet. `rookery config check` names those of your files.',
      '',
    );
    for (const name of idle) out.push(`- \`${name}\``);
    out.push('');
  }
  return out.join('\n');
}

const isOld = (row: Setting): boolean =>
  row.removed !== undefined || row.deprecated !== undefined || row.meaningless !== undefined;

function oldText(row: Setting): string {
  if (row.meaningless !== undefined) return `understood, without meaning here: ${row.meaningless}.`;
  if (row.removed)
    return `removed in ${row.removed.since}${row.removed.refuse ? '; the server does not start with it' : '; ignored with a warning'}. ${row.removed.instead}`;
  return `deprecated, still read: ${row.deprecated}.${row.rule ? ` ${row.rule}` : ''}`;
}

/** A list item, with the keys of a section as items below it. */
function entry(name: SettingName): string[] {
  const row = rowOf(name);
  const value = writtenDefault(row);
  const standard = row.required ? 'must be set' : value === undefined ? undefined : `default \`${value}\``;
  const about = [row.kind.label, standard, row.since && `since ${row.since}`].filter(Boolean).join('; ');
  return [
    `- **\`${name}\`**${row.reload ? ' ↻' : ''} (${about}): ${row.doc}${row.rule ? ` ${row.rule}` : ''}`,
    ...fieldItems(row.kind.fields ?? {}, '  '),
  ];
}

function fieldItems(fields: Fields, indent: string): string[] {
  return Object.entries(fields).flatMap(([key, one]) => {
    const standard = one.required
      ? 'must be set'
      : one.default === undefined
        ? undefined
        : `default \`${JSON.stringify(one.default)}\``;
    const about = [one.kind.label, standard].filter(Boolean).join('; ');
    return [`${indent}- \`${key}\` (${about}): ${one.doc}`, ...fieldItems(one.kind.fields ?? {}, `${indent}  `)];
  });
}
