import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generateConfig } from './generate.js';
import { checkConfig } from './load.js';

describe('the first settings file', () => {
  it('is taken without a single remark', () => {
    const folder = mkdtempSync(join(tmpdir(), 'rookery-generate-'));
    try {
      const file = join(folder, 'homeserver.yaml');
      const secrets = {
        registrationSharedSecret: 'a'.repeat(50),
        macaroonSecretKey: 'b'.repeat(50),
        formSecret: 'c'.repeat(50),
      };
      writeFileSync(file, generateConfig({ serverName: 'example.org', dataDir: 'data', secrets }));
      const { config, problems } = checkConfig([file], { env: {} });
      expect(problems).toEqual([]);
      expect(config?.serverName).toBe('example.org');
      expect(config?.get('registration_shared_secret')).toBe('a'.repeat(50));
      // A new server tells nobody which addresses have accounts.
      expect(config?.get('request_token_inhibit_3pid_errors')).toBe(true);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
