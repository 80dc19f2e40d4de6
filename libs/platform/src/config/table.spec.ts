import { Ajv2020 } from 'ajv/dist/2020.js';
import { Config } from './config.js';
import { configurationReference } from './reference.js';
import { configurationSchema } from './schema.js';
import { settingsReport } from './settings-report.js';
import { chapters, rowOf, settingNames } from './table.js';
import { withoutEffect } from './without-effect.js';

describe('the table of settings', () => {
  it('puts every setting into exactly one chapter', () => {
    const named = Object.values(chapters).flatMap((rows) => Object.keys(rows));
    expect(named.length).toBe(new Set(named).size);
    expect([...named].sort()).toEqual([...settingNames].sort());
  });

  it('never uses a setting as a section', () => {
    const names = new Set<string>(settingNames);
    for (const name of settingNames) {
      const parts = name.split('.');
      for (let length = 1; length < parts.length; length++)
        expect(names.has(parts.slice(0, length).join('.'))).toBe(false);
    }
  });

  it('has defaults that its own kinds read', () => {
    const problems: string[] = [];
    const context = {
      baseDir: '/',
      error: (path: unknown, message: string) => problems.push(`${String(path)}: ${message}`),
      warn: (path: unknown, message: string) => problems.push(`${String(path)}: ${message}`),
      written: () => undefined,
      secret: () => undefined,
      takesInline: () => true,
    };
    for (const name of settingNames) {
      const row = rowOf(name);
      if (row.default !== undefined)
        expect([name, row.kind.read(row.default, [name], context)]).toEqual([
          name,
          row.kind.label === 'path' ? expect.any(String) : row.default,
        ]);
    }
    expect(problems).toEqual([]);
  });

  it('names existing settings for files of secrets and in the list without effect', () => {
    for (const name of settingNames) {
      const target = rowOf(name).fileOf;
      if (target !== undefined) expect(settingNames).toContain(target);
      expect(rowOf(name).doc).toMatch(/\S.*[.…:]$/);
    }
    for (const name of withoutEffect) expect(settingNames).toContain(name);
  });

  it('starts without a word from its own defaults', () => {
    expect(Config.fromObject().warnings).toEqual([]);
  });
});

describe('the JSON Schema', () => {
  const validate = new Ajv2020({ strict: false, validateFormats: false }).compile(configurationSchema());
  const accepts = (settings: object): boolean => validate({ server_name: 'a.org', report_stats: false, ...settings });

  it('agrees with the reader', () => {
    expect(
      accepts({
        max_upload_size: '50M',
        email: null,
        listeners: [{ port: 1, type: 'http', resources: [{ names: ['client'] }] }],
      }),
    ).toBe(true);
    expect(accepts({ server_notices: { system_mxid_localpart: 'notices', system_mxid_avatar_url: '' } })).toBe(true);
    expect(accepts({ server_notices: { system_mxid_localpart: 'notices', system_mxid_avatar_url: 'x' } })).toBe(false);
    // What files leave empty is not set, unless it has a default or must be there.
    expect(accepts({ turn_shared_secret: '', pid_file: '', form_secret: '', redis: { password: '' } })).toBe(true);
    expect(accepts({ listeners: [{ port: 1, type: 'http', bind_address: '' }] })).toBe(true);
    expect([accepts({ media_store_path: '' }), validate({ server_name: '', report_stats: true })]).toEqual([
      false,
      false,
    ]);
    expect(accepts({ default_power_level_content_override: { public_chat: null, private_chat: {} } })).toBe(true);
    expect([accepts({ alias_creation_rules: [{}] }), accepts({ alias_creation_rules: [{ action: 'no' }] })]).toEqual([
      true,
      false,
    ]);
    expect(accepts({ max_upload_size: 'much' })).toBe(false);
    expect(accepts({ enable_serach: true })).toBe(false);
    expect(accepts({ email: { smtp_prot: 1 } })).toBe(false);
    expect(accepts({ log_file: 'x' })).toBe(false);
    expect(accepts({ listeners: [{ type: 'webclient', port: 1 }] })).toBe(false);
    expect(accepts({ rc_message: { per_second: 1 }, redaction_retention_period: null })).toBe(true);
    expect(validate({ report_stats: true })).toBe(false);
  });
});

describe('the reference', () => {
  it('tells every setting', () => {
    const text = configurationReference();
    for (const name of settingNames) expect(text).toContain(`\`${name}\``);
    expect(text).toContain('default `30m`');
    expect(text).toContain('default `50M`');
  });
});

describe('the report of settings', () => {
  it('finds what is read in spite of the list, and what is neither read nor listed', () => {
    const idle = [...withoutEffect][0];
    const honest = settingsReport(
      settingNames.filter((name) => !withoutEffect.has(name)).map((name) => `config.get('${name}')`),
    );
    expect(honest).toEqual({ readThoughIdle: [], idleThoughSilent: [] });
    if (idle !== undefined) expect(settingsReport([`config.get('${idle}')`]).readThoughIdle).toEqual([idle]);
    expect(settingsReport([]).idleThoughSilent).toContain('enable_registration');
    const composed = settingsReport(['config.get(`email.${kind}_template_html`)']).idleThoughSilent;
    expect(composed).not.toContain('email.registration_template_html');
    expect(composed).toContain('email.smtp_host');
  });
});
