import { Config } from '@rookery/platform';
import { FakeClock, SeededIds } from '@rookery/testing';
import { cookieOf, SealedCookies } from './sealed-cookies.js';
import { SsoAddresses } from './sso-addresses.js';

const make = (settings: Record<string, unknown> = {}, clock = new FakeClock()) => {
  const config = Config.fromObject({
    public_baseurl: 'https://m.example/base/',
    macaroon_secret_key: 'm',
    ...settings,
  });
  return { clock, cookies: new SealedCookies(config, clock, new SeededIds(1), new SsoAddresses(config)) };
};

describe('sealed cookies', () => {
  it('give back what was put in, to those who have the key, under the same name, in time', async () => {
    const { cookies, clock } = make();
    const sealed = cookies.seal('a', { x: 'ü' }, 1_000)!;
    expect(sealed).not.toContain('ü');
    expect(cookies.open('a', sealed)).toEqual({ x: 'ü' });
    expect(make({}, clock).cookies.open('a', sealed)).toEqual({ x: 'ü' });
    expect(cookies.open('b', sealed)).toBeUndefined();
    expect(make({ macaroon_secret_key: 'n' }, clock).cookies.open('a', sealed)).toBeUndefined();
    await clock.advance(999);
    expect(cookies.open('a', sealed)).toEqual({ x: 'ü' });
    await clock.advance(1);
    expect(cookies.open('a', sealed)).toBeUndefined();
  });

  it('are worthless when a single bit is another', () => {
    const { cookies } = make();
    const bytes = Buffer.from(cookies.seal('a', { x: 1 }, 1_000)!, 'base64url');
    for (let i = 0; i < bytes.length; i++) {
      const changed = Buffer.from(bytes);
      changed[i]! ^= 1;
      expect(cookies.open('a', changed.toString('base64url'))).toBeUndefined();
    }
    for (const rubbish of ['', 'x', 'A'.repeat(37), 'A'.repeat(10_000)])
      expect(cookies.open('a', rubbish)).toBeUndefined();
  });

  it('are not made larger than browsers keep them', () => {
    expect(make().cookies.seal('a', { x: 'x'.repeat(4_000) }, 1_000)).toBeUndefined();
  });

  it('carry the attributes that the way back needs', () => {
    const secure = make().cookies;
    const at = (site: 'cross-site' | 'lax' | 'legacy', cookies = secure): string =>
      cookies.header('a', 'v', { path: '_synapse/client/oidc', lifetimeMs: 60_000, site });
    expect(at('cross-site')).toBe('a=v; Path=/base/_synapse/client/oidc; Max-Age=60; HttpOnly; Secure; SameSite=None');
    expect(at('lax')).toMatch(/; Secure; SameSite=Lax$/);
    expect(at('legacy')).toMatch(/; HttpOnly; Secure$/);
    const open = make({ public_baseurl: 'http://localhost:8008/', service_prefix: '_svc' }).cookies;
    expect(at('cross-site', open)).toBe('a=v; Path=/_svc/client/oidc; Max-Age=60; HttpOnly; SameSite=Lax');
    expect(secure.removal('a', { path: '', site: 'lax' })).toContain('; Max-Age=0;');
  });

  it('are found among others', () => {
    const headers = { cookie: 'x=1; ab=2; a=one=two ; a=three' };
    expect(cookieOf({ headers }, 'a')).toBe('one=two');
    expect(cookieOf({ headers }, 'b')).toBeUndefined();
    expect(cookieOf({ headers: {} }, 'a')).toBeUndefined();
  });
});
