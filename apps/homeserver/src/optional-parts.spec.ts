import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadConfig } from '@rookery/platform';
import { missingPartOf, missingParts, optionalParts } from './optional-parts.js';

describe('parts that are installed when they are named', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'rookery-parts-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const problemWith = (settings: object, isThere: (name: string) => boolean): string | undefined => {
    const file = join(folder, 'homeserver.yaml');
    writeFileSync(file, JSON.stringify({ server_name: 'rookery.test', report_stats: false, ...settings }));
    return missingParts(loadConfig([file]), ({ name }) => isThere(name));
  };
  const all = {
    database: { name: 'psycopg2', args: { host: '127.0.0.1' } },
    redis: { enabled: true },
    saml2_config: { sp_config: { metadata: { local: [] } } },
    email: { notif_from: 'Rookery <rookery@rookery.test>' },
  };

  it('are asked for in one line, by what the settings want', () => {
    expect(problemWith({}, () => false)).toBeUndefined();
    expect(problemWith(all, () => true)).toBeUndefined();
    expect(problemWith({ database: all.database }, () => false)).toBe(
      'PostgreSQL (database.name) needs the package pg: install it beside the server, npm install -g pg@8',
    );
    const every = problemWith(all, () => false) ?? '';
    expect(every).not.toContain('\n');
    for (const { name, version } of optionalParts) expect(every).toContain(`${name}@${version}`);
    expect(problemWith(all, (name) => name !== 'nodemailer')).toMatch(/^mail \(email\) needs the package nodemailer: /);
  });

  it('are found where they are installed, as here', () => {
    writeFileSync(
      join(folder, 'all.yaml'),
      JSON.stringify({ server_name: 'rookery.test', report_stats: false, ...all }),
    );
    expect(missingParts(loadConfig([join(folder, 'all.yaml')]))).toBeUndefined();
  });

  it('are named by the versions that are tested, and by what a command came upon', () => {
    const { dependencies } = JSON.parse(readFileSync(join(process.cwd(), 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>;
    };
    for (const { name, version } of optionalParts) expect(dependencies[name]?.split('.')[0]).toBe(version);
    const error = Object.assign(new Error("Cannot find package 'pg' imported from /here.js"), {
      code: 'ERR_MODULE_NOT_FOUND',
    });
    expect(missingPartOf(error)).toBe('PostgreSQL (database.name) needs the package pg: npm install -g pg@8');
    expect(missingPartOf(new Error('something else'))).toBeUndefined();
  });
});
