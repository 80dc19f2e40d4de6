import { Linter } from 'eslint';
import tseslint from 'typescript-eslint';
// @ts-expect-error: configuration files have no types
import given from '../../eslint.config.mjs';

const configs = given as readonly Linter.Config[];

const watched = ['no-restricted-syntax', 'no-restricted-imports'];

/** What the project's lint says of a text that no types are known of. */
function lint(path: string, text: string): string[] {
  const rules = configs
    .filter((config) => config.files !== undefined && watched.some((rule) => config.rules?.[rule] !== undefined))
    .map(({ files, ignores = [], rules: all }) => ({
      files,
      ignores,
      rules: Object.fromEntries(watched.flatMap((rule) => (all?.[rule] === undefined ? [] : [[rule, all[rule]]]))),
    }));
  const parser = { files: ['**/*.ts'], languageOptions: { parser: tseslint.parser } };
  return new Linter().verify(text, [parser, ...rules] as Linter.Config[], path).map(({ message }) => message);
}

const place = 'libs/rooms/src/reading/thing.service.ts';

describe('the lint of errors', () => {
  it('lets errors with a name pass, and those that somebody else decided', () => {
    expect(lint(place, `throw MatrixError.notFound();`)).toEqual([]);
    expect(lint(place, `throw MatrixError.passedOn(answer.status, answer.errcode, 'refused');`)).toEqual([]);
  });

  it.each([
    `throw new MatrixError(404, 'M_NOT_FOUND', 'no');`,
    `const gone = () => new MatrixError(status, code, 'no');`,
    `throw MatrixError.passedOn(404, 'M_NOT_FOUND', 'no');`,
  ])('finds %s', (text) => {
    expect(lint(place, text)).toHaveLength(1);
    expect(lint('libs/matrix-types/src/errors.ts', text)).toEqual([]);
  });
});

describe('the lint of requests', () => {
  const text = `import type { InboundRequest } from '@rookery/http';`;

  it('lets controllers see the HTTP request', () => {
    for (const path of ['libs/rooms/src/http/a.ts', 'libs/admin/src/rooms/a.controller.ts', 'libs/users/src/a.spec.ts'])
      expect(lint(path, text)).toEqual([]);
    expect(lint(place, `import type { RequestOrigin } from '@rookery/platform';`)).toEqual([]);
  });

  it('finds a service that takes it', () => {
    expect(lint(place, text)).toEqual([expect.stringContaining('RequestOrigin')]);
    expect(lint(place, `import { forwardRef } from '@nestjs/common';`)).toHaveLength(1);
  });
});
