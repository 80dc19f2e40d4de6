import tseslint from 'typescript-eslint';

const outsidePlatform = [
  { object: 'process', property: 'env', message: 'Settings and environment are read in libs/platform only.' },
  { object: 'Date', property: 'now', message: 'Take the time from Clock.' },
  { object: 'Math', property: 'random', message: 'Take randomness from Ids.' },
];

const noNestErrors = {
  name: '@nestjs/common',
  importNames: ['forwardRef', 'HttpException'],
  message: 'Hooks go up; errors are MatrixError.',
};

export default tseslint.config(
  { ignores: ['**/dist/**', '**/node_modules/**', '**/*.cjs'] },
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.base],
    languageOptions: { parserOptions: { project: './tsconfig.check.json', tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': ['error', { checksVoidReturn: false }],
      '@typescript-eslint/await-thenable': 'error',
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_', caughtErrors: 'none' },
      ],
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      eqeqeq: ['error', 'always', { null: 'ignore' }],
      'no-var': 'error',
      'prefer-const': 'error',
      'no-restricted-exports': ['error', { restrictDefaultExports: { direct: true } }],
    },
  },
  {
    files: ['libs/*/src/**/*.ts', 'apps/*/src/**/*.ts'],
    ignores: ['**/*.spec.ts', '**/*.fixture.ts', 'libs/testing/**'],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          paths: [noNestErrors],
        },
      ],
      'no-restricted-syntax': [
        'error',
        {
          selector: "MemberExpression[object.name='Scope'][property.name='REQUEST']",
          message: 'Pass the Requester as an argument.',
        },
        { selector: "CallExpression[callee.name='Inject'] > Literal", message: 'Use an abstract class as the token.' },
        {
          selector: "NewExpression[callee.name='MatrixError']",
          message: 'Use a named constructor, MatrixError.notFound(); new kinds are rows of error-table.ts.',
        },
        {
          selector:
            "CallExpression[callee.object.name='MatrixError'][callee.property.name='passedOn'][arguments.1.type='Literal']",
          message: 'What this server decides itself is a row of error-table.ts.',
        },
      ],
    },
  },
  {
    files: ['libs/*/src/**/*.ts', 'apps/*/src/**/*.ts'],
    ignores: ['**/*.spec.ts', '**/*.fixture.ts', 'libs/testing/**', 'libs/platform/**'],
    rules: {
      'no-restricted-properties': ['error', ...outsidePlatform],
      'no-restricted-globals': 'off',
    },
  },
  // The HTTP request ends at the controllers, and where requests are authenticated or made of a module's.
  {
    files: ['libs/*/src/**/*.ts'],
    ignores: [
      '**/*.spec.ts',
      '**/*.fixture.ts',
      '**/*.controller.ts',
      '**/*-guard.ts',
      'libs/*/src/http/**',
      'libs/{http,testing}/**',
      'libs/users/src/authentication/**',
      'libs/federation/src/inbound/**',
      'libs/module-services/src/web/**',
      'libs/sso/src/common/browser-request.ts',
    ],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          paths: [
            noNestErrors,
            {
              name: '@rookery/http',
              importNames: ['InboundRequest', 'LateRequest'],
              message: 'Services take a RequestOrigin, or what they need of a request.',
            },
          ],
        },
      ],
    },
  },
  { files: ['libs/matrix-types/src/errors.ts'], rules: { 'no-restricted-syntax': 'off' } },
  // The way of an event is read beside the specification: no stage of it does more than one can hold in mind.
  {
    files: ['libs/rooms/src/{pipeline,room,state,store,model}/**/*.ts'],
    ignores: ['**/*.spec.ts', '**/*.fixture.ts'],
    rules: { complexity: ['error', 15] },
  },
  { files: ['modules-examples/**/*.ts', 'test/**/*.ts'], rules: { 'no-restricted-exports': 'off' } },
);
