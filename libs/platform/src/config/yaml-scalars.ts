import type { ScalarTag } from 'yaml';

const prefix = 'tag:yaml.org,2002:';

/** A kind of plain scalar: what it looks like, and what it means. */
const scalar = (name: string, test: RegExp, resolve: (text: string) => unknown): ScalarTag => ({
  tag: `${prefix}${name}`,
  default: true,
  test,
  resolve,
});

const plainDigits = (text: string): string => text.replaceAll('_', '');

/** `1:30` is ninety, `1:30:00` fifty-four hundred. */
const sexagesimal = (text: string): number =>
  text
    .replace(/^[-+]/, '')
    .split(':')
    .reduce((sum, part) => sum * 60 + Number(plainDigits(part)), 0);

const signed = (text: string, read: (text: string) => number): number =>
  text.startsWith('-') ? -read(text.slice(1)) : read(text.replace(/^\+/, ''));

const inBase = (base: number, skip: number) => (text: string) =>
  signed(text, (digits) => parseInt(plainDigits(digits).slice(skip), base));

/**
 * What plain scalars mean in settings files: as PyYAML reads them, which the field's files are written for. That is YAML 1.1
 * but for a few: `y` and `n` are text, `on` and `off` are not; `1e3` is text, `1.0e+3` is a number; `08` is text, `010` is eight.
 */
export const settingsScalars: readonly ScalarTag[] = [
  scalar('bool', /^(?:yes|Yes|YES|true|True|TRUE|on|On|ON)$/, () => true),
  scalar('bool', /^(?:no|No|NO|false|False|FALSE|off|Off|OFF)$/, () => false),
  scalar('int', /^[-+]?0b[01_]+$/, inBase(2, 2)),
  scalar('int', /^[-+]?0x[0-9a-fA-F_]+$/, inBase(16, 2)),
  scalar('int', /^[-+]?0[0-7_]+$/, inBase(8, 1)),
  scalar('int', /^[-+]?(?:0|[1-9][0-9_]*)$/, (text) => Number(plainDigits(text))),
  scalar('int', /^[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+$/, (text) => signed(text, sexagesimal)),
  scalar('float', /^[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?$/, (text) => Number(plainDigits(text))),
  scalar('float', /^\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?$/, (text) => Number(plainDigits(text))),
  scalar('float', /^[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*$/, (text) => signed(text, sexagesimal)),
  scalar('float', /^[-+]?\.(?:inf|Inf|INF)$/, (text) => (text.startsWith('-') ? -Infinity : Infinity)),
  scalar('float', /^\.(?:nan|NaN|NAN)$/, () => NaN),
];

const replaced = new Set(settingsScalars.map(({ tag }) => tag));
const kept = new Set(['map', 'seq', 'str', 'null', 'merge'].map((name) => `${prefix}${name}`));

/** The tags of settings files, made from those of YAML 1.1. Dates, binary data and sets stay text: no setting takes them. */
export const settingsTags = <Tag extends { readonly tag: string } | string>(
  tags: readonly Tag[],
): (Tag | ScalarTag)[] => [
  ...tags.filter((tag) => typeof tag === 'string' || (kept.has(tag.tag) && !replaced.has(tag.tag))),
  ...settingsScalars,
];
