import { canonicalJson, SigningKey } from '@rookery/events';
import { authorizationHeader, parseAuthorization, parseAuthorizations, signedRequestText } from './authorization.js';

// The key of the specification's signing vectors.
const key = SigningKey.fromSeed('1', Buffer.from('YJDBA9Xnr2sVqXD9Vj7XVUnmFZcZrlw8Md7kMW+3XA1', 'base64'));

describe('the signature of a request', () => {
  it('covers the canonical form of what the specification names', () => {
    const content = { z: 1, a: ['ü', { '10': 1, '9': 2 }], ключ: '"' };
    const parts = { method: 'PUT', uri: '/a?b=%20"', origin: 'domain', destination: 'other:8448' };
    expect(signedRequestText({ ...parts, canonicalContent: canonicalJson(content) })).toBe(
      canonicalJson({ ...parts, content }),
    );
    expect(signedRequestText({ ...parts, canonicalContent: undefined })).toBe(canonicalJson(parts));
    expect(signedRequestText({ ...parts, destination: undefined, canonicalContent: undefined })).toBe(
      canonicalJson({ ...parts, destination: undefined }),
    );
  });

  it('is written into a header that says whom it is for', () => {
    const parts = {
      ...{ method: 'GET', uri: '/_matrix/federation/v1/version', origin: 'domain' },
      ...{ destination: 'other', canonicalContent: undefined },
    };
    const header = authorizationHeader(parts, key);
    const credentials = parseAuthorization(header);
    expect(credentials).toEqual({
      ...{ origin: 'domain', destination: 'other', keyId: 'ed25519:1' },
      signature: key.sign(signedRequestText(parts)),
    });
    expect(key.verifyKey.verify(signedRequestText(parts), credentials!.signature)).toBe(true);
    expect(key.verifyKey.verify(signedRequestText({ ...parts, destination: 'third' }), credentials!.signature)).toBe(
      false,
    );
    expect(header).toMatch(/^X-Matrix origin="domain",destination="other",key="ed25519:1",sig="[A-Za-z0-9+/]{86}"$/);
  });

  it.each([
    ['X-Matrix origin="a",destination="b",key="ed25519:1",sig="c"', 'b'],
    ['X-Matrix origin=a,key=ed25519:1,sig=c', undefined],
    ['x-matrix   origin="a" , key="ed25519:1",\t sig="c" ,, extra="\\"quoted\\",x=y"', undefined],
    ['X-Matrix sig="c",ORIGIN="a",Key="ed25519:1",destination="\\b"', 'b'],
    ['X-Matrix origin=a:8448,key="ed25519:1",sig="c",destination=b:1', 'b:1'],
    ['X-Matrix origin=a,destination=b,key="ed25519:1",sig="c"', 'b'],
    ['X-MATRIX Origin\t=\t"a"\t,\tDestination = b\t,Key= "ed25519:1",Sig ="c"', 'b'],
    ['X-Matrix ,,origin="\\a",key="\\e\\d25519\\:1",sig="c",destination="b",extra="\\\\",', 'b'],
    ['X-Matrix origin=a,key=ed25519:1,sig=c,destination="[2001:db8::1]:8448"', '[2001:db8::1]:8448'],
    ['X-Matrix origin=a,key=ed25519:1,sig=c,destination=[2001:db8::1]', '[2001:db8::1]'],
  ])('is read from %s', (header, destination) => {
    const origin = header.includes('a:8448') ? 'a:8448' : 'a';
    expect(parseAuthorization(header)).toEqual({ origin, destination, keyId: 'ed25519:1', signature: 'c' });
  });

  it.each([
    '',
    'X-Matrix',
    'Bearer abc',
    'X-Matrix origin="a"',
    'X-Matrix origin="a",key="ed25519:1"',
    'X-Matrix origin="",key="ed25519:1",sig="c"',
    'X-Matrix origin="a",key="ed25519:1",sig="c',
    'X-Matrix origin="a" key="ed25519:1" sig="c"',
    'X-Matrix origin="a",origin="b",key="ed25519:1",sig="c"',
    'X-Matrix origin="a",key="ed25519:1",sig="c",=x',
    'X-Matrix\torigin="a",key="ed25519:1",sig="c"',
    'X-Matrixorigin="a",key="ed25519:1",sig="c"',
    'X-Matrix origin="a",key="ed25519:1",sig="c\\"',
    'X-Matrix origin="a"b,key="ed25519:1",sig="c"',
    'X-Matrix origin=a b,key="ed25519:1",sig="c"',
    'X-Matrix origin=a,key="ed25519:1",sig=,destination=b',
    'X-Matrix origin="a",KEY="ed25519:1",key="ed25519:2",sig="c"',
    'X-Matrix origin="a",key="ed25519:1",sig="c",destination',
    'X-Matrix origin="a",key="ed25519:1",sig="c", X-Matrix origin="a",key="ed25519:2",sig="d"',
    `X-Matrix origin="a",key="ed25519:1",sig="${'c'.repeat(5_000)}"`,
    `X-Matrix ${'a="'.repeat(1_300)}`,
  ])('is not read from %s', (header) => {
    expect(parseAuthorization(header)).toBeUndefined();
  });

  it('is read from several headers that agree, one for each key', () => {
    const header = (version: number, more = 'destination="b"'): string =>
      `X-Matrix origin=a,key="ed25519:${version}",sig="c${version}",${more}`;
    const signatures = (...versions: number[]): unknown =>
      versions.map((version) => expect.objectContaining({ keyId: `ed25519:${version}`, signature: `c${version}` }));
    const read = { origin: 'a', destination: 'b' };
    expect(parseAuthorizations([header(1)])).toEqual({ ...read, signatures: signatures(1) });
    expect(parseAuthorizations([header(1), header(2)])).toEqual({ ...read, signatures: signatures(1, 2) });
    expect(parseAuthorizations(['Bearer x', header(3), 'Basic y'])).toEqual({ ...read, signatures: signatures(3) });
    expect(parseAuthorizations([header(1, ''), header(2, '')])).toEqual({
      ...{ origin: 'a', destination: undefined, signatures: signatures(1, 2) },
    });
    for (const headers of [
      [],
      ['Bearer x'],
      [header(1), header(2, '')],
      [header(1), header(2, 'destination=c')],
      [header(1), header(2).replace('origin=a', 'origin=e')],
      [header(1), 'X-Matrix origin=a,destination=b'],
      [header(1), 'X-Matrix'],
      [1, 2, 3, 4, 5].map((version) => header(version)),
    ])
      expect([headers, parseAuthorizations(headers)]).toEqual([headers, undefined]);
  });
});
