import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { AdminTargets } from './admin-targets.js';

/** What the controllers of the admin API share, the accounts among it. */
@Module({ imports: [UsersModule], providers: [AdminTargets], exports: [AdminTargets, UsersModule] })
export class AdminKitModule {}
