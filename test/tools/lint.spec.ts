import { Linter } from 'eslint';
import tseslint from 'typescript-eslint';
// @ts-expect-error: configuration files have no types
import given from '../../eslint.config.mjs';

const configs = given as readonly Linter.Config[];

/** What the project's lint says of a text that no types are known of. */
function lint(path: string, text: string): string[] {
  const rules = configs
    .filter((config) => config.files !== undefined && config.rules?.['no-restricted-syntax'] !== undefined)
    .map(({ files, ignores = [], rules: all }) => ({
      files,
      ignores,
      rules: { 'no-restricted-syntax': all?.['no-restricted-syntax'] },
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
