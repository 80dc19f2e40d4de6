/** What the fixtures of this repository use beside the rest: it shows types of Nest, and is not in the package that authors of modules get. */
export { createTestModule, type TestModule, type TestModuleOptions } from './test-module.js';
