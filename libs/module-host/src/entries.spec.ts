import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadConfig } from '@rookery/platform';
import { moduleEntriesOf } from './entries.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-places-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Where the module's setting `config.words[1]` stands, for each module. */
function places(text: string): string[] {
  const file = join(folder, 'homeserver.yaml');
  writeFileSync(file, `server_name: example.org\nreport_stats: false\n${text}`);
  const entries = moduleEntriesOf(loadConfig([file], { env: {} }));
  return entries.map(
    ({ module, where }) => `${module} ${where?.(['config', 'words', 1])?.replace(`${folder}/homeserver.yaml`, '')}`,
  );
}

it('knows the line of a value, through comments, aliases and merges', () => {
  const text = [
    'x: &x', // 3
    '  words:',
    '  - a',
    '  # then',
    '  - b', // 7
    'modules:',
    '- module: plain',
    '  config:', // 10
    '    words: # these',
    '',
    '    - a',
    '    - b', // 14
    '- module: alias',
    '  config: *x',
    '- module: merged',
    '  config: {<<: *x, more: 1}',
    '- module: merged-list',
    '  config:', // 20
    '    <<: [{other: 1}, *x]',
    '- module: own',
    '  config: {<<: *x,',
    '    words: [c,',
    '      d]}', // 25
    '- module: flow',
    '  config: {words: [a,',
    '    b]}', // 28
    '- module: without',
    '  config: {}', // 30
    '',
  ];
  expect(places(text.join('\n'))).toEqual([
    'plain :14',
    'alias :7',
    'merged :7',
    'merged-list :7',
    'own :25',
    'flow :28',
    'without :30',
  ]);
});

it('knows the line of modules that stand in settings of the past, and of those behind them', () => {
  const text = [
    'third_party_event_rules:', // 3
    '  module: rules',
    '  config: {words: [a,',
    '    b]}', // 6
    'spam_checker:',
    '  module: one-checker',
    '  config: {words: [a,',
    '    b]}', // 10
    'password_providers:',
    '- module: passwords',
    '  config: {words: [a,',
    '    b]}', // 14
    'presence: {presence_router: {module: router, config: {words: [a,',
    '  b]}}}', // 16
    'modules:',
    '- module: last',
    '  config: {words: [a,',
    '    b]}', // 20
    '',
  ];
  expect(places(text.join('\n'))).toEqual(['passwords :14', 'one-checker :10', 'rules :6', 'router :16', 'last :20']);
});

it('says how the operator’s command finds the settings', () => {
  const first = join(folder, 'a b.yaml');
  writeFileSync(first, 'server_name: example.org\nreport_stats: false\n');
  writeFileSync(join(folder, 'c.yaml'), 'modules: [{module: x}]\n');
  const entries = moduleEntriesOf(loadConfig([first, join(folder, 'c.yaml')], { env: {} }));
  expect(entries[0]?.settingsOption).toBe(` -c '${first}' -c ${join(folder, 'c.yaml')}`);
});
