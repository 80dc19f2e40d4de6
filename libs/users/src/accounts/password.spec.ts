import { hash } from '@node-rs/bcrypt';
import { Config } from '@rookery/platform';
import { PasswordService } from './password.service.js';

const service = (settings: object = {}): PasswordService =>
  new PasswordService(Config.fromObject({ bcrypt_rounds: 4, ...settings }));

describe('PasswordService', () => {
  const passwords = service({ 'password_config.pepper': 'salt & pepper' });

  it('makes and checks hashes that other servers read', async () => {
    const stored = await passwords.hash('wonderland');
    expect(stored).toMatch(/^\$2[aby]\$04\$/);
    expect(await passwords.verify('wonderland', stored)).toEqual({ matches: true });
    expect(await passwords.verify('wonderlanD', stored)).toEqual({ matches: false });
    // As other servers store it: the normalized text and the pepper, in bcrypt.
    expect(await passwords.verify('wonderland', await hash('wonderlandsalt & pepper', 4))).toEqual({ matches: true });
  });

  it.each(['$2a$', '$2b$', '$2y$'])('reads hashes marked %s', async (mark) => {
    const stored = (await hash('pwsalt & pepper', 4)).replace(/^\$2.\$/, mark);
    expect((await passwords.verify('pw', stored)).matches).toBe(true);
  });

  it('takes the same password however its letters are composed', async () => {
    expect((await passwords.verify('caf\u0065\u0301', await passwords.hash('caf\u00e9'))).matches).toBe(true);
  });

  it('looks at all of a long password', async () => {
    for (const length of [58, 59, 60, 71, 72, 73, 100, 512]) {
      const long = 'x'.repeat(length - 1);
      const stored = await passwords.hash(`${long}a`);
      expect((await passwords.verify(`${long}a`, stored)).matches).toBe(true);
      expect((await passwords.verify(`${long}b`, stored)).matches).toBe(false);
      if (length < 512) expect((await passwords.verify(`${long}aa`, stored)).matches).toBe(false);
    }
  });

  it('keeps the pepper in the hash of a long password', async () => {
    const stored = await passwords.hash('x'.repeat(100));
    expect((await service({ 'password_config.pepper': 'another' }).verify('x'.repeat(100), stored)).matches).toBe(
      false,
    );
  });

  it('checks an imported hash that saw 72 bytes only, and replaces it by one that saw all', async () => {
    const long = 'y'.repeat(80);
    const imported = await hash(long.slice(0, 72), 4);
    const first = await passwords.verify(long, imported);
    expect(first.matches).toBe(true);
    expect((await passwords.verify(long, first.upgradedHash)).matches).toBe(true);
    expect((await passwords.verify(`${'y'.repeat(79)}z`, first.upgradedHash)).matches).toBe(false);
  });

  it('never matches what is no hash', async () => {
    for (const stored of [undefined, '', '*', 'plain', '$2b$', '$rk1', '$rk1$2b$04$short'])
      expect((await passwords.verify('plain', stored)).matches).toBe(false);
    expect((await passwords.verify('a\0b', await hash('a', 4))).matches).toBe(false);
    expect((await passwords.verify('z'.repeat(513), await passwords.hash('z'.repeat(512)))).matches).toBe(false);
  });

  it('works as long for a user who is not there as for one who is', async () => {
    const costly = service({ bcrypt_rounds: 9 });
    const stored = await costly.hash('pw');
    const time = async (hashToCheck: string | undefined): Promise<number> => {
      const started = performance.now();
      await costly.verify('guess', hashToCheck);
      return performance.now() - started;
    };
    // The shortest of many, taken in turn, is the work itself: what else the machine does only makes a try longer. A busy one needs more of them.
    let [absent, present] = [Infinity, Infinity];
    const isAlike = (): boolean => absent / present > 0.6 && absent / present < 1.6;
    for (let i = 0; i < 25 || (i < 500 && !isAlike()); i++) {
      absent = Math.min(absent, await time(undefined));
      present = Math.min(present, await time(stored));
    }
    expect(absent / present).toBeGreaterThan(0.6);
    expect(absent / present).toBeLessThan(1.6);
  });

  it.each([
    ['short', 'M_PASSWORD_TOO_SHORT'],
    ['LongEnough!', 'M_PASSWORD_NO_DIGIT'],
    ['LongEnough1', 'M_PASSWORD_NO_SYMBOL'],
    ['longenough1!', 'M_PASSWORD_NO_UPPERCASE'],
    ['LONGENOUGH1!', 'M_PASSWORD_NO_LOWERCASE'],
    ['', 'M_WEAK_PASSWORD'],
    ['a\0b', 'M_INVALID_PARAM'],
    ['x'.repeat(513), 'M_INVALID_PARAM'],
  ])('refuses %j', (password, errcode) => {
    const strict = service({
      'password_config.policy': {
        enabled: true,
        minimum_length: 8,
        require_digit: true,
        require_symbol: true,
        require_lowercase: true,
        require_uppercase: true,
      },
    });
    expect(() => strict.assertAcceptable(password)).toThrow(expect.objectContaining({ status: 400, errcode }));
    expect(() => strict.assertAcceptable('LongEnough1!')).not.toThrow();
  });
});
