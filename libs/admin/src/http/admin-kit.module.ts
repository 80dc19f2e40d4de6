import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { AdminTargets } from './admin-targets.js';

/** What the controllers of the admin API share. */
@Module({ imports: [UsersModule], providers: [AdminTargets], exports: [AdminTargets] })
export class AdminKitModule {}
