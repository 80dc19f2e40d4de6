import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { temporaryFolder } from '@rookery/testing/internal';
import { runNpm } from './npm.js';

/** An npm that says how it was called, beside a Node.js. @returns that of the Node.js */
async function nodeWithNpm(script: string): Promise<string> {
  const bin = join(await temporaryFolder('rookery-npm-'), 'bin');
  mkdirSync(bin);
  writeFileSync(join(bin, 'npm'), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return join(bin, 'node');
}

describe('npm', () => {
  const kept = {
    HOME: process.env['HOME'],
    PATH: process.env['PATH'],
    npm_config_cache: process.env['npm_config_cache'],
  };
  beforeEach(() => void delete process.env['npm_config_cache']);
  afterEach(() => {
    for (const [name, value] of Object.entries(kept)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  });

  it('is the one beside the Node.js that runs this, which what it starts finds as well', async () => {
    const node = await nodeWithNpm('echo "$PATH"');
    process.env['HOME'] = dirname(node);
    const { status, stdout } = runNpm(['install'], { node });
    expect([status, stdout.split(delimiter)[0]]).toEqual([0, dirname(node)]);
  });

  it('keeps what it fetches for as long as it runs where it can write nothing', async () => {
    const node = await nodeWithNpm('for each; do :; done; test -d "${each#--cache=}" && echo "$@"');
    process.env['HOME'] = '/proc/nobody';
    const { stdout } = runNpm(['view'], { node });
    const [, cache = ''] = /^view --cache=(\S+)\n$/.exec(stdout) ?? [];
    expect(cache).not.toBe('');
    expect(existsSync(cache)).toBe(false);
    process.env['HOME'] = dirname(node);
    expect(runNpm(['view', '.'], { node }).stdout).toBe('view .\n');
    process.env['HOME'] = '/proc/nobody';
    process.env['npm_config_cache'] = dirname(node);
    expect(runNpm(['view', '.'], { node }).stdout).toBe('view .\n');
  });

  it('is named with what installs it where there is none', async () => {
    const node = join(await temporaryFolder('rookery-npm-'), 'node');
    process.env['PATH'] = dirname(node);
    expect(() => runNpm(['view'], { node })).toThrow(/npm is not installed\..*apt install npm/);
  });
});
