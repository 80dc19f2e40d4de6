import { serverAclOf } from './server-acl.js';

const decide = (content: object, ...servers: string[]): string[] =>
  servers.filter((server) => serverAclOf(content as Record<string, never>).allows(server));

describe('serverAclOf', () => {
  it('lets in whom a glob allows and none denies', () => {
    const content = { allow: ['*'], deny: ['evil.test', '*.evil.test', 'bad?.test'] };
    expect(decide(content, 'good.test', 'evil.test', 'a.evil.test', 'bad1.test', 'bad.test', 'evil.test.good')).toEqual(
      ['good.test', 'bad.test', 'evil.test.good'],
    );
  });

  it('looks at names without port and without regard to case', () => {
    const content = { allow: ['*.Example'], deny: ['Evil.EXAMPLE'] };
    expect(decide(content, 'a.example:8448', 'evil.example:1', 'EVIL.example', 'A.EXAMPLE')).toEqual([
      'a.example:8448',
      'A.EXAMPLE',
    ]);
  });

  it('keeps addresses out where they are not wanted', () => {
    const addresses = ['1.2.3.4', '1.2.3.4:8448', '[::1]', '[2001:db8::1]:8448'];
    expect(decide({ allow: ['*'], allow_ip_literals: false }, ...addresses, '1.2.3.4.test')).toEqual(['1.2.3.4.test']);
    expect(decide({ allow: ['*'] }, ...addresses)).toEqual(addresses);
    expect(decide({ allow: ['*'], allow_ip_literals: 'no' }, ...addresses)).toEqual(addresses);
  });

  it('lets nobody in where nobody is allowed', () => {
    for (const content of [{}, { allow: [] }, { allow: '*' }, { allow: [5, null, {}] }, { allow: ['*'], deny: ['*'] }])
      expect(decide(content, 'good.test')).toEqual([]);
  });

  it('takes long globs without hanging', () => {
    const glob = '*a'.repeat(5_000);
    expect(decide({ allow: ['*'], deny: [`${glob}b`] }, 'a'.repeat(200))).toHaveLength(1);
  });
});
